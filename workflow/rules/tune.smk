"""Stage `tune`: the exported folder, fine-tuned for a task with one seed."""


rule tune:
    """Fine-tune a model for a task with one seed; continue where an earlier attempt stopped."""
    input:
        unpack(inputs("tune")),
    output:
        "results/tune/{result}/manifest.json",
    log:
        "logs/tune/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=gpus("tune", most=1),
        mem_mb=each_attempt(16_000),
        runtime=each_attempt(480),
    shell:
        "python -m babelmill.tune {input.settings:q} --threads {threads} --gpus {resources.gpu}"
