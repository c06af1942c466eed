"""Stage `experiment`. Takes: all results of the cells of an experiment. Gives: experiments/{experiment}/: results.csv,
table.md, table.tex, page.html.

`snakemake experiments/masking` asks for the folder, so it is the rule's output. The rule is not in the table of stages:
an experiment is no model, and its settings file is written like that of a report.
"""


rule experiment:
    """Compare the cells of an experiment: tables for papers, and a page."""
    input:
        settings=settings_of_experiment,
        converted=of_experiment(results_of("convert")),
        evaluations=of_experiment(results_of("evaluate", "evaluation.json")),
        records=of_experiment(results_of("train", "metrics.jsonl")),
        scores=of_experiment(results_of("score", "manifest.json", "scores.json")),
        tuned=of_experiment(results_of("tune", "manifest.json", "scores.json")),
    output:
        folder=directory("experiments/{experiment}"),
    log:
        "logs/experiment/{experiment}.log",
    benchmark:
        "results/benchmarks/experiment/{experiment}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "python -m babelmill.experiment --settings {input.settings:q} --out {output.folder:q} --log {log:q}"
