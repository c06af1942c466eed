"""Stage `train`: the weights of a model and their average, from the shards of its languages.

Checkpoints are in results/checkpoints/{result}/, which is not an output: Snakemake deletes the outputs of a failed job,
but an interrupted job continues from its last checkpoint. `--resources gpu=N` or a profile limits the number of
processes. They are started on `nodes` machines.
"""


rule train:
    """Train the model with one process per GPU, and at least one process."""
    input:
        unpack(inputs("train")),
    output:
        "results/train/{result}/manifest.json",
    log:
        "logs/train/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=gpus("train", most=1000),
        nodes=1,
        requeue=0,
        attempt=lambda wildcards, attempt: attempt,
        mem_mb=each_attempt(32_000),
        runtime=720,
    shell:
        "python -m babelmill.train {input.settings:q} --threads {threads}"
        " --gpus {resources.gpu} --nodes {resources.nodes} --requeue {resources.requeue} --attempt {resources.attempt}"
