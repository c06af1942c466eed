"""Stage `download`. Takes: a dataset on the Hugging Face Hub, at one commit. Gives: results/downloads/{language}/.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule download:
    """Download a language's dataset through the Hugging Face cache, and check it."""
    input:
        settings=settings("download"),
    output:
        folder=directory("results/downloads/{language}"),
    log:
        "logs/download/{language}.log",
    benchmark:
        "results/benchmarks/download/{language}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    shell:
        "python -m babelmill.download --settings {input.settings:q} --out {output.folder:q} --log {log:q}"
