"""Stage `score`: the exported folder on the items of a suite, which are also looked for in the training text."""


rule score:
    """Score the sentences of each item of a suite; continue where an earlier attempt stopped."""
    input:
        unpack(inputs("score")),
    output:
        "results/score/{result}/manifest.json",
    log:
        "logs/score/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=gpus("score", most=1),
        mem_mb=each_attempt(16_000),
        runtime=each_attempt(480),
    shell:
        "python -m babelmill.score {input.settings:q} --threads {threads} --gpus {resources.gpu}"
