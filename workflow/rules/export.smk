"""Stage `export`. Takes: trained weights and tokenizer. Gives:
results/exports/{model}/, a Hugging Face folder without a card.
"""


rule export:
    """Write the Hugging Face folder and prove, in a fresh process, that it computes the same as the training model."""
    input:
        settings=settings("export"),
        model=multiext(
            "results/models/{model}/", "manifest.json", "model.safetensors", "ema.safetensors", "config.json"
        ),
        tokenizer=multiext("results/tokenizers/{model}/", "manifest.json", "tokenizer.json"),
        shards=results_of("shards", "manifest.json"),
        validation=results_of("shards", "validation.safetensors"),
        source=frozen_weights,
    output:
        folder=directory("results/exports/{model}"),
    log:
        "logs/export/{model}.log",
    benchmark:
        "results/benchmarks/export/{model}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 2
    resources:
        mem_mb=memory(16, 8),
        runtime=minutes(30, 40),
    shell:
        "python -m babelmill.export --settings {input.settings:q} --model {input.model[0]:q}"
        " --tokenizer {input.tokenizer[0]:q} --shards {input.shards:q} --source {input.source:q}"
        " --checkpoints results/checkpoints/{wildcards.model:q} --out {output.folder:q} --log {log:q}"
