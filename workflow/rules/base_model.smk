"""Stage `base_model`: the model that another one continues (`model.source`), of the Hugging Face Hub or a folder.

A local rule: it runs where Snakemake runs, because compute nodes often have no network.
"""


rule base_model:
    """Fetch the model that another one continues, and write its tensors under neutral names. None of its code runs."""
    input:
        unpack(inputs("base_model")),
    output:
        "results/base_model/{result}/manifest.json",
    log:
        "logs/base_model/{result}.log",
    localrule: True
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
    shell:
        "python -m babelmill.base_model {input.settings:q} --threads {threads}"
