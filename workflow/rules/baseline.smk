"""Stage `baseline`: baselines/{model}.json, which lists what was measured of a model of another project."""


rule baseline:
    """List what was measured of a model that is not trained here (`train: none`)."""
    input:
        unpack(named_inputs("baseline")),
    output:
        "baselines/{model}.json",
    log:
        "logs/baseline/{model}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=30,
    shell:
        "python -m babelmill.baseline {input.settings:q} --threads {threads}"
