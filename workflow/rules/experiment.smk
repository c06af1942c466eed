"""An experiment: experiments/{experiment}/ with results.csv, table.md, table.tex and page.html, written whenever it is
asked for.
"""


rule experiment:
    """Compare the cells of an experiment: tables for papers, and a page."""
    input:
        unpack(of_models(EXPERIMENT, asked_of_experiment)),
    output:
        directory("experiments/{experiment}"),
    log:
        "logs/experiment/{experiment}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "python -m babelmill.experiment {input.settings:q} --threads {threads}"
