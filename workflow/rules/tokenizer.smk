"""Stage `tokenizer`. Takes: the corpora of a model's languages, and the model that it continues, if any. Gives:
results/tokenizers/{model}/tokenizer.json.
"""


rule tokenizer:
    """Train the model's byte-level BPE tokenizer on the training split, and measure it on the validation split."""
    input:
        settings=settings("tokenizer"),
        corpora=results_of("corpus", "manifest.json"),
        text=results_of("corpus", "train.parquet"),
        validation=results_of("corpus", "validation.parquet"),
        source=source_tokenizer,
    output:
        tokenizer="results/tokenizers/{model}/tokenizer.json",
        manifest="results/tokenizers/{model}/manifest.json",
    log:
        "logs/tokenizer/{model}.log",
    benchmark:
        "results/benchmarks/tokenizer/{model}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        mem_mb=by_text(4000, 155_000, gb_of_tokenizer),  # 155 bytes per byte of text in which no piece comes twice
        runtime=60,
    shell:
        "python -m babelmill.tokenizer --settings {input.settings:q} --corpora {input.corpora:q}"
        " --source {input.source:q} --out {output.manifest:q} --threads {threads} --log {log:q}"
