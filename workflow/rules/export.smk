"""Stage `export`: a Hugging Face folder of the trained weights and their tokenizer, without a card."""


rule export:
    """Write the Hugging Face folder and prove, in a fresh process, that it computes the same as the training model."""
    input:
        unpack(inputs("export")),
    output:
        "results/export/{result}/manifest.json",
    log:
        "logs/export/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 2
    resources:
        mem_mb=each_attempt(16_000),
        runtime=each_attempt(120),
    shell:
        "python -m babelmill.export {input.settings:q} --threads {threads}"
