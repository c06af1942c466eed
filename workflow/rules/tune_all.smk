"""All fine-tunings of a model in one job, if `run.tasks_at_once` is above 1. Takes: the exported folder, the rows of its tasks.
Gives: a mark; the results are beside the checkpoints, where `tune` finds them.
"""


rule tune_all:
    """Fine-tune a model for its tasks in one job; continue where an earlier attempt stopped."""
    input:
        settings=settings_of_tunings,
        run=run_settings,
        export="results/exports/{model}",
        tasks=results_of("task", "manifest.json"),
    output:
        made=temp("results/tuning/{model}/{run}.done"),
    log:
        "logs/tune_all/{model}/{run}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=one_gpu,
        requeue=0,
        mem_mb=memory_of_tunings,
        runtime=720,
    shell:
        "python -m babelmill.tasks.together --settings {input.run:q} --tunings {input.settings:q}"
        " --export {input.export:q} --out {output.made:q} --threads {threads} --gpus {resources.gpu}"
        " --requeue {resources.requeue} --log {log:q}"
