"""Stage `evaluate`: bits per byte of the exported folder on the validation text, or the accuracy of its codes."""


rule evaluate:
    """Measure the scores of the objective on the validation text: bits per byte, or the accuracy of codes."""
    input:
        unpack(inputs("evaluate")),
    output:
        manifest="results/evaluate/{result}/manifest.json",
        evaluation="results/evaluate/{result}/evaluation.json",
    log:
        "logs/evaluate/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=gpus("evaluate", most=1),
        mem_mb=each_attempt(16_000),
        runtime=each_attempt(240),
    shell:
        "python -m babelmill.evaluate {input.settings:q} --threads {threads} --gpus {resources.gpu}"
