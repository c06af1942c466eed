"""Stage `tokenizer`: the tokenizer of a model, trained on the corpora of its languages or taken from elsewhere."""


rule tokenizer:
    """Train the model's byte-level BPE tokenizer on the training split, and measure it on the validation split."""
    input:
        unpack(inputs("tokenizer")),
    output:
        "results/tokenizer/{result}/manifest.json",
    log:
        "logs/tokenizer/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        mem_mb=each_attempt(24_000),
        runtime=each_attempt(120),
    shell:
        "python -m babelmill.tokenizer {input.settings:q} --threads {threads}"
