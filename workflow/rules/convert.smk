"""Stage `convert`: converted/{model}/, the deliverable: the exported folder with a model card of what was measured."""


rule convert:
    """Add the model card, written from what was measured, to the exported folder."""
    input:
        unpack(named_inputs("convert")),
    output:
        directory("converted/{model}"),
    log:
        "logs/convert/{model}.log",
    wildcard_constraints:
        model=".+",  # converted/eng/config.json then ends with our error (no such model), not a MissingRuleException
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=each_attempt(8000),
        runtime=each_attempt(60),
    shell:
        "python -m babelmill.convert {input.settings:q} --threads {threads}"
