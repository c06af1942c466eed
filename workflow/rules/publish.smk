"""Stage `publish`: published/{model}.json, the receipt of what is on the Hugging Face Hub: repository, commit, files.

A local rule: it runs where Snakemake runs, and uses the network and the environment of that machine.
"""


rule publish:
    """Update the model's repository on the Hugging Face Hub to the content of the converted folder, in one commit."""
    input:
        unpack(named_inputs("publish")),
    output:
        update("published/{model}.json"),  # a failed push leaves the receipt of the push before it
    log:
        "logs/publish/{model}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    shell:
        "python -m babelmill.publish {input.settings:q} --threads {threads}"


for group in [*CONFIG.groups, "all"]:

    rule:
        """Publish the models of a group (`publish_tier1`), or of `targets:` (`publish_all`), on the Hub."""
        name:
            f"publish_{group}"
        input:
            deliverables(group, published=True),
        localrule: True
