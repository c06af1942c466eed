"""Stage `score`. Takes: the exported folder and the items of a suite, and the training text if it is still there. Gives:
results/scores/{model}/{suite}/scores.json.
"""


rule score:
    """Score the sentences of each item of a suite; continue where an earlier attempt stopped."""
    input:
        settings=settings("score"),
        export="results/exports/{model}",
        suites=results_of("suite", "manifest.json"),
    output:
        manifest="results/scores/{model}/{suite}/manifest.json",
        scores="results/scores/{model}/{suite}/scores.json",
    log:
        "logs/score/{model}/{suite}.log",
    benchmark:
        "results/benchmarks/score/{model}/{suite}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        gpu=one_gpu,
        mem_mb=memory(16, 6),
        runtime=minutes(240, 240),
    shell:
        "python -m babelmill.score --settings {input.settings:q} --export {input.export:q} --suites {input.suites:q}"
        " --corpora results/corpora"
        " --partial results/scoring/{wildcards.model:q}/{wildcards.suite:q} --out {output.manifest:q}"
        " --threads {threads} --gpus {resources.gpu} --log {log:q}"
