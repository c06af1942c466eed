"""Stage `suite`. Takes: files of minimal pairs or choices, local or of a dataset on the Hub. Gives:
results/suites/{suite}/{language}/.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule suite:
    """Read the items of a suite in one language, and check them."""
    input:
        settings=settings("suite"),
    output:
        manifest="results/suites/{suite}/{language}/manifest.json",
    log:
        "logs/suite/{suite}/{language}.log",
    benchmark:
        "results/benchmarks/suite/{suite}/{language}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    shell:
        "python -m babelmill.suite --settings {input.settings:q} --out {output.manifest:q} --log {log:q}"
