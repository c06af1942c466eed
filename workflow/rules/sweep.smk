"""Rounds of a sweep (`sweep: halving` of an experiment). Takes: the trials of the cells that are in the round. Gives:
results/sweeps/{experiment}/round{round}.json, who goes on and who is dropped.

It is a checkpoint of Snakemake: only its result says which jobs come next. `survivors` (common.smk) asks for it.
"""


checkpoint sweep:
    """Decide which cells of a sweep are trained further."""
    input:
        settings=settings_of_sweep,
        trials=trials_of_round,
    output:
        decision="results/sweeps/{experiment}/round{round}.json",
    log:
        "logs/sweep/{experiment}/{round}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "experiments.{wildcards.experiment}: a sweep: round {wildcards.round} of 3; the later jobs follow from its results"
    shell:
        "python -m babelmill.sweep --settings {input.settings:q} --round {wildcards.round:q} --out {output.decision:q}"
        " --log {log:q}"
