"""Stage `train`. Takes: the shards of a model's languages, and the model that it continues, if any. Gives:
results/models/{model}/, the weights and their average.

Checkpoints are in results/checkpoints/{model}/, which is not an output: Snakemake deletes the outputs of a failed job,
but an interrupted job continues from its last checkpoint. `--resources gpu=N` or a profile limits the number of
processes. They are started on `nodes` machines.
"""


rule train:
    """Train the model with one process per GPU, and at least one process."""
    input:
        settings=settings("train"),
        run=run_settings,
        same=trained_before,
        tokenizer=multiext("results/tokenizers/{model}/", "manifest.json", "tokenizer.json"),
        shards=results_of("shards", "manifest.json"),
        tokens=results_of("shards", "train.safetensors"),
        validation=results_of("shards", "validation.safetensors"),
        source=source_weights,
    output:
        main="results/models/{model}/model.safetensors",
        ema="results/models/{model}/ema.safetensors",
        config="results/models/{model}/config.json",
        metrics="results/models/{model}/metrics.jsonl",
        manifest="results/models/{model}/manifest.json",
    log:
        "logs/train/{model}.log",
    benchmark:
        "results/benchmarks/train/{model}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=gpus,
        nodes=1,
        requeue=0,
        attempt=attempt_number,
        mem_mb=memory(gb_of_processes, gb_of_training),
        runtime=720,
    shell:
        "python -m babelmill.train --settings {input.settings:q} --run {input.run:q} --tokenizer {input.tokenizer[0]:q}"
        " --shards {input.shards:q} --source {input.source:q} --checkpoints results/checkpoints/{wildcards.model:q} --compiled results/compiled --out {output.manifest:q}"
        " --processes $(( {resources.gpu} > 1 ? {resources.gpu} : 1 )) --gpus {resources.gpu}"
        " --nodes {resources.nodes} --threads {threads}"
        " --requeue {resources.requeue} --attempt {resources.attempt} --log {log:q}"
