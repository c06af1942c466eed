"""Stage `shards`. Takes: a model's tokenizer and one language's corpus. Gives: results/shards/{model}/{language}/."""


rule shards:
    """Tokenize both splits of a language into one stream of tokens each."""
    input:
        settings=settings("shards"),
        tokenizer=multiext("results/tokenizers/{model}/", "manifest.json", "tokenizer.json"),
        corpus=corpus_of_language,
    output:
        train="results/shards/{model}/{language}/train.safetensors",
        validation="results/shards/{model}/{language}/validation.safetensors",
        manifest="results/shards/{model}/{language}/manifest.json",
    log:
        "logs/shards/{model}/{language}.log",
    benchmark:
        "results/benchmarks/shards/{model}/{language}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        mem_mb=4000,
        runtime=by_text(60, 4, gb_of_corpus),
        disk_mb=by_text(1000, 1000, gb_of_corpus),
    shell:
        "python -m babelmill.shards --settings {input.settings:q} --language {wildcards.language:q}"
        " --tokenizer {input.tokenizer[0]:q} --corpus {input.corpus[0]:q}"
        " --out {output.manifest:q} --threads {threads} --log {log:q}"
