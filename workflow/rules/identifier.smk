"""Stage `identifier`. Takes: a model on the Hugging Face Hub that finds languages, at one commit. Gives:
results/identifiers/{language}/.

A local rule: it runs where Snakemake runs, because compute nodes often have no network. Only corpora whose
`corpus.language_filter` names such a model need it.
"""


rule identifier:
    """Fetch the model that finds the languages of a corpus through the Hugging Face cache, and check it."""
    input:
        settings=settings("identifier"),
    output:
        folder=directory("results/identifiers/{language}"),
    log:
        "logs/identifier/{language}.log",
    benchmark:
        "results/benchmarks/identifier/{language}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    shell:
        "python -m babelmill.identifier --settings {input.settings:q} --out {output.folder:q} --log {log:q}"
