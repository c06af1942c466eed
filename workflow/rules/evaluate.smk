"""Stage `evaluate`. Takes: the exported folder and the validation text. Gives:
results/evaluations/{model}/evaluation.json.
"""


rule evaluate:
    """Measure the scores of the objective on the validation text: bits per byte, or the accuracy of codes."""
    input:
        settings=settings("evaluate"),
        export="results/exports/{model}",
        corpora=results_of("corpus", "manifest.json"),
        text=results_of("corpus", "validation.parquet"),
        shards=results_of("shards", "manifest.json"),
        tokens=results_of("shards", "train.safetensors"),
        validation=results_of("shards", "validation.safetensors"),
    output:
        evaluation=report(
            "results/evaluations/{model}/evaluation.json",
            caption="../report/evaluation.rst",
            category="Evaluation",
            labels={"model": "{model}"},
        ),
        manifest="results/evaluations/{model}/manifest.json",
    log:
        "logs/evaluate/{model}.log",
    benchmark:
        "results/benchmarks/evaluate/{model}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=one_gpu,
        mem_mb=memory(16, 6),
        runtime=minutes(120, 60),
    shell:
        "python -m babelmill.evaluate --settings {input.settings:q} --export {input.export:q}"
        " --corpora {input.corpora:q} --shards {input.shards:q} --out {output.manifest:q} --threads {threads}"
        " --gpus {resources.gpu} --log {log:q}"
