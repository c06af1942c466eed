"""Stage `tune`. Takes: the exported folder and the rows of a task. Gives:
results/tuned/{model}/{task}/{seed}/scores.json.

With `run.tasks_at_once` above 1, one job per model (`tune_all`) makes all that is missing, several at once, and
`tune` only moves the results to their place, where Snakemake runs.
"""

MOVE_TUNED = (
    "made=results/tuning/{wildcards.model:q}/{wildcards.task:q}/{wildcards.seed:q}.made;"
    " [ {input.together:q} ] && [ -e $made/manifest.json ] ||"
    ' {{ echo "error: $made has no results of tune_all; run the same command again" | tee {log:q} >&2; exit 1; }};'
    " cp -r $made/. $(dirname {output.manifest:q}) && rm -r $made"
)


rule tune:
    """Fine-tune a model for a task with one seed; continue where an earlier attempt stopped."""
    input:
        settings=settings("tune"),
        export="results/exports/{model}",
        tasks=results_of("task", "manifest.json"),
        together=tuned_together,
    output:
        manifest="results/tuned/{model}/{task}/{seed}/manifest.json",
        scores="results/tuned/{model}/{task}/{seed}/scores.json",
        predictions="results/tuned/{model}/{task}/{seed}/predictions.parquet",
    log:
        "logs/tune/{model}/{task}/{seed}.log",
    benchmark:
        "results/benchmarks/tune/{model}/{task}/{seed}.tsv"
    localrule: TUNES_TOGETHER
    conda:
        "../../envs/babelmill.yaml"
    threads: 1 if TUNES_TOGETHER else 8
    resources:
        gpu=0 if TUNES_TOGETHER else one_gpu,
        mem_mb=memory(16, 24),
        runtime=minutes(240, 960),
    shell:
        (
            MOVE_TUNED
            if TUNES_TOGETHER
            else "python -m babelmill.tune --settings {input.settings:q} --export {input.export:q} --tasks {input.tasks:q}"
            " --checkpoints results/tuning/{wildcards.model:q}/{wildcards.task:q}/{wildcards.seed:q}"
            " --out {output.manifest:q} --threads {threads} --gpus {resources.gpu} --log {log:q}"
        )
