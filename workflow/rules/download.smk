"""Stage `download`: the text of a language, from a dataset on the Hugging Face Hub, at one commit.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule download:
    """Download a language's dataset through the Hugging Face cache, and check it."""
    input:
        unpack(inputs("download")),
    output:
        "results/download/{result}/manifest.json",
    log:
        "logs/download/{result}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    shell:
        "python -m babelmill.download {input.settings:q} --threads {threads}"
