"""The report: reports/{group}.html and .csv, written whenever it is asked for.

`{group}` may be a group, a model, `all` (the targets), or several of these: reports/eng+deu.html. `babelmill report`
writes the same report from the results that exist.
"""


rule report:
    """Write the results of a group as one page and one table."""
    input:
        unpack(of_models(REPORT, asked_of)),
    output:
        page="reports/{group}.html",
        table="reports/{group}.csv",
    log:
        "logs/report/{group}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "python -m babelmill.report {input.settings:q} --threads {threads}"
