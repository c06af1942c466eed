"""Stage `tune`. Takes: the exported folder and the rows of a task. Gives:
results/tuned/{model}/{task}/{seed}/scores.json.
"""


rule tune:
    """Fine-tune a model for a task with one seed; continue where an earlier attempt stopped."""
    input:
        settings=settings("tune"),
        export="results/exports/{model}",
        tasks=results_of("task", "manifest.json"),
    output:
        manifest="results/tuned/{model}/{task}/{seed}/manifest.json",
        scores="results/tuned/{model}/{task}/{seed}/scores.json",
        predictions="results/tuned/{model}/{task}/{seed}/predictions.parquet",
    log:
        "logs/tune/{model}/{task}/{seed}.log",
    benchmark:
        "results/benchmarks/tune/{model}/{task}/{seed}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=one_gpu,
        mem_mb=memory(16, 24),
        runtime=minutes(240, 960),
    shell:
        "python -m babelmill.tune --settings {input.settings:q} --export {input.export:q} --tasks {input.tasks:q}"
        " --checkpoints results/tuning/{wildcards.model:q}/{wildcards.task:q}/{wildcards.seed:q}"
        " --out {output.manifest:q} --threads {threads} --gpus {resources.gpu} --log {log:q}"
