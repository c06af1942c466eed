"""Stage `corpus`. Takes: the text of a language (local files, the built-in corpus, or a download), and if the
configuration asks for it, a model that finds languages and suites whose items no document may hold. Gives:
results/corpora/{language}/.
"""


rule corpus:
    """Read, clean and deduplicate a language's text, and set the validation documents aside."""
    input:
        settings=settings("corpus"),
        download=results_of_language("download"),
        identifier=results_of_language("identifier"),
        suites=suites_of_corpus,
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
    threads: processes_of_corpus
    resources:
        mem_mb=memory_of_corpus,
        runtime=by_text(120, 1, gb_of_input),
        disk_mb=by_text(1000, 1000, gb_of_input),
    shell:
        "python -m babelmill.corpus --settings {input.settings:q} --download {input.download:q}"
        " --identifier {input.identifier:q} --suites {input.suites:q}"
        " --out {output.manifest:q} --threads {threads} --log {log:q}"
