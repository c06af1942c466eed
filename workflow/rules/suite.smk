"""Stage `suite`: minimal pairs, choices or words in one language, local or of a dataset on the Hub.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule suite:
    """Read the items of a suite in one language, and check them."""
    input:
        unpack(inputs("suite")),
    output:
        "results/suite/{result}/manifest.json",
    log:
        "logs/suite/{result}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    shell:
        "python -m babelmill.suite {input.settings:q} --threads {threads}"
