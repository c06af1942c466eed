"""Stage `task`. Takes: the rows of a fine-tuning task, local or of a dataset on the Hub. Gives:
results/tasks/{task}/{language}/.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule task:
    """Read the rows of a task in one language, and check them."""
    input:
        settings=settings("task"),
    output:
        manifest="results/tasks/{task}/{language}/manifest.json",
        train="results/tasks/{task}/{language}/train.parquet",
        test="results/tasks/{task}/{language}/test.parquet",
    log:
        "logs/task/{task}/{language}.log",
    benchmark:
        "results/benchmarks/task/{task}/{language}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    shell:
        "python -m babelmill.task --settings {input.settings:q} --out {output.manifest:q} --log {log:q}"
