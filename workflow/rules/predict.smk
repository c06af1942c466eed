"""Stage `predict`. Takes: a table, and converted/{model} of a label model. Gives:
predictions/{model}/{input}{,.review}.csv.
"""


rule predict:
    """Predict the codes of each row of a table; continue where an earlier attempt stopped."""
    input:
        settings=settings("predict"),
        table=table_to_predict,
        folder="converted/{model}",
    output:
        predictions="predictions/{model}/{input}.csv",
        review="predictions/{model}/{input}.review.csv",
        manifest="predictions/{model}/{input}.json",
    log:
        "logs/predict/{model}/{input}.log",
    benchmark:
        "results/benchmarks/predict/{model}/{input}.tsv"
    wildcard_constraints:
        input="[^/.]+",  # x.review.csv is a second output of table x, not a table of its own
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=one_gpu,
        mem_mb=memory(8, 6),
        runtime=minutes(240, 240),
    shell:
        "python -m babelmill.predict --settings {input.settings:q} --converted {input.folder:q}"
        " --table {input.table:q} --partial results/predictions/{wildcards.model:q}/{wildcards.input:q}"
        " --out {output.predictions:q} --review {output.review:q} --threads {threads} --gpus {resources.gpu} --log {log:q}"
