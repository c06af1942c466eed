"""Stage `identifier`: a model of the Hugging Face Hub that finds languages (`corpus.language_filter`), at one commit.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule identifier:
    """Fetch the model that finds the languages of a corpus through the Hugging Face cache, and check it."""
    input:
        unpack(inputs("identifier")),
    output:
        "results/identifier/{result}/manifest.json",
    log:
        "logs/identifier/{result}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    shell:
        "python -m babelmill.identifier {input.settings:q} --threads {threads}"
