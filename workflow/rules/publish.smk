"""Stage `publish`. Takes: converted/{model}, and the submission of a model of a challenge. Gives: published/{model}.json, the receipt: repository, commit, files.

A local rule: it runs where Snakemake runs, and uses the network and the environment of that machine.
"""


rule publish:
    """Update the model's repository on the Hugging Face Hub to the content of the converted folder, in one commit."""
    input:
        settings=settings("publish"),
        folder=converted_to_publish,
        submission=submission_to_publish,
    output:
        receipt=update("published/{model}.json"),  # a failed push leaves the receipt of the push before it
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
        " --submission {input.submission:q} --out {output.receipt:q} --log {log:q}"


for batch in [*CONFIG.batches, "all"]:

    rule:
        """Publish the models of a batch (`publish_tier1`), or of `targets:` (`publish_all`), on the Hub."""
        name:
            f"publish_{batch}"
        input:
            expand("published/{model}.json", model=CONFIG.models_of([batch])),
        localrule: True
