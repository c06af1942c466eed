"""Stage `task`: the rows of a fine-tuning task in one language, local or of a dataset on the Hub.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule task:
    """Read the rows of a task in one language, and check them."""
    input:
        unpack(inputs("task")),
    output:
        "results/task/{result}/manifest.json",
    log:
        "logs/task/{result}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    shell:
        "python -m babelmill.task {input.settings:q} --threads {threads}"
