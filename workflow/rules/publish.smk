"""Stage `publish`. Takes: converted/{model}. Gives: published/{model}.json, the receipt: repository, commit, files.

A local rule: it runs where Snakemake runs, with the network and the environment that are there.
"""


rule publish:
    """Bring the model's repository on the Hugging Face Hub to what the converted folder holds, in one commit."""
    input:
        settings=settings("publish"),
        folder=converted_to_publish,
    output:
        receipt=update("published/{model}.json"),  # a push that fails leaves that of the one before
    log:
        "logs/publish/{model}.log",
    benchmark:
        "results/benchmarks/publish/{model}.tsv"
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    shell:
        "python -m babelmill.publish --settings {input.settings:q} --folder {input.folder:q}"
        " --out {output.receipt:q} --log {log:q}"


for batch, models in {**CONFIG.batches, "all": CONFIG.targets()}.items():

    rule:
        """The models of a batch (`publish_tier1`), or of `targets:` (`publish_all`), on the Hub."""
        name:
            f"publish_{batch}"
        input:
            published(models),
        localrule: True
