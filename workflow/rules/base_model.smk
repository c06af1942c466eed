"""Stage `base_model`. Takes: a model of the Hugging Face Hub at one commit, or a folder. Gives:
results/base_models/{model}/.

A local rule: it runs where Snakemake runs, because compute nodes often have no network. Only models whose
`model.source` is not a model of this workflow need it.
"""


rule base_model:
    """Fetch the model that another one continues, and write its tensors under neutral names. None of its code runs."""
    input:
        settings=settings("base_model"),
    output:
        folder=directory("results/base_models/{model}"),
    log:
        "logs/base_model/{model}.log",
    benchmark:
        "results/benchmarks/base_model/{model}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
    shell:
        "python -m babelmill.base_model --settings {input.settings:q} --out {output.folder:q} --log {log:q}"
