"""Trials of a sweep (`sweep: halving` of an experiment). Takes: what stage `train` takes. Gives:
results/trials/{model}/{round}/manifest.json, with the bits per byte after a third or two thirds of the steps.

A trial is the beginning of the model's training: it leaves a checkpoint in results/checkpoints/{model}/, from which the
next trial, or `train`, continues. It has the settings and the code of `train`, so it is not in the table of stages.
"""

# What a profile or the command line sets for `train` holds for `trial`, too, unless it sets something for `trial`.
for overwritten in (
    workflow.resource_settings._parsed_overwrite_resources,
    workflow.resource_settings._parsed_overwrite_threads,
):
    for rule_name in [name for name in overwritten if name == "train" or name.endswith("_train")]:
        overwritten.setdefault(f"{rule_name.removesuffix('train')}trial", overwritten[rule_name])


rule trial:
    """Train a cell of a sweep up to a share of its steps, and measure it there."""
    input:
        settings=settings("trial"),
        run=run_settings,
        before=trials_before,
        same=trained_before,
        tokenizer=multiext("results/tokenizers/{model}/", "manifest.json", "tokenizer.json"),
        shards=results_of("shards", "manifest.json"),
        tokens=results_of("shards", "train.safetensors"),
        validation=results_of("shards", "validation.safetensors"),
        source=source_weights,
    output:
        manifest="results/trials/{model}/{round}/manifest.json",
    log:
        "logs/trial/{model}/{round}.log",
    benchmark:
        "results/benchmarks/trial/{model}/{round}.tsv"
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
        " --nodes {resources.nodes} --threads {threads} --until {wildcards.round:q}/3"
        " --requeue {resources.requeue} --attempt {resources.attempt} --log {log:q}"
