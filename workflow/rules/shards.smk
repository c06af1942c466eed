"""Stage `shards`: the corpus of one language as tokens."""


rule shards:
    """Tokenize both splits of a language into one stream of tokens each."""
    input:
        unpack(inputs("shards")),
    output:
        "results/shards/{result}/manifest.json",
    log:
        "logs/shards/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        mem_mb=each_attempt(4000),
        runtime=each_attempt(240),
    shell:
        "python -m babelmill.shards {input.settings:q} --threads {threads}"
