"""Stage `predict`: predictions/{model}/{input}.csv and .review.csv, the codes of a table's rows by a model of labels."""


rule predict:
    """Predict the codes of each row of a table; continue where an earlier attempt stopped."""
    input:
        unpack(named_inputs("predict")),
    output:
        "predictions/{model}/{input}.json",
        "predictions/{model}/{input}.csv",
        "predictions/{model}/{input}.review.csv",
    log:
        "logs/predict/{model}.{input}.log",
    wildcard_constraints:
        input="[^/.]+",  # x.review.csv is a third output of table x, not a table of its own
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=gpus("predict", most=1),
        mem_mb=each_attempt(16_000),
        runtime=each_attempt(240),
    shell:
        "python -m babelmill.predict {input.settings:q} --threads {threads} --gpus {resources.gpu}"
