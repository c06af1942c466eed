"""The report. Takes: all results of the models of a batch. Gives: reports/{batch}.html and .csv.

`{batch}` may be a batch, a model, `all` (the targets), or several of these: reports/eng+deu.html. `babelmill report`
writes the same report from the results that exist.
"""


rule report:
    """Write the results of a batch as one page and one table."""
    input:
        settings=settings_of_report,
        converted=of_batch(results_of("convert")),
        evaluations=of_batch(results_of("evaluate", "evaluation.json")),
        records=of_batch(results_of("train", "metrics.jsonl")),
        scores=of_batch(results_of("score", "manifest.json", "scores.json")),
        tuned=of_batch(results_of("tune", "manifest.json", "scores.json")),
    output:
        page="reports/{batch}.html",
        table="reports/{batch}.csv",
    log:
        "logs/report/{batch}.log",
    benchmark:
        "results/benchmarks/report/{batch}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "python -m babelmill.report --settings {input.settings:q} --out {output.page:q} --csv {output.table:q}"
        " --log {log:q}"
