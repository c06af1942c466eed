"""Stage `corpus`. Takes: the text of a language: local files, the built-in corpus, or a download. Gives:
results/corpora/{language}/.
"""


rule corpus:
    """Read, clean and deduplicate a language's text, and set the validation documents aside."""
    input:
        settings=settings("corpus"),
        download=download_of_language,
    output:
        train="results/corpora/{language}/train.parquet",
        validation="results/corpora/{language}/validation.parquet",
        manifest="results/corpora/{language}/manifest.json",
    log:
        "logs/corpus/{language}.log",
    benchmark:
        "results/benchmarks/corpus/{language}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        mem_mb=4000,
        runtime=120,
    shell:
        "python -m babelmill.corpus --settings {input.settings:q} --download {input.download:q}"
        " --out {output.manifest:q} --threads {threads} --log {log:q}"
