"""Stage `submission`. Takes: the scores of a model of a challenge, converted/{model}. Gives: submissions/{model}.json, the
leaderboard's numbers and what is missing, and submissions/{model}/, the files that the challenge takes.
"""


rule submission:
    """Collate the predictions of a model as its challenge does, check them, and compute the leaderboard's numbers."""
    input:
        settings=settings("submission"),
        scores=results_of("score", "manifest.json"),
        score_files=results_of("score", "scores.json"),
        tuned=results_of("tune", "manifest.json"),
        model="results/models/{model}/manifest.json",
        folder="converted/{model}",
    output:
        summary="submissions/{model}.json",
        files=directory("submissions/{model}"),
    log:
        "logs/submission/{model}.log",
    benchmark:
        "results/benchmarks/submission/{model}.tsv"
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=memory(8, 0),
        runtime=minutes(30, 0),
    shell:
        "python -m babelmill.submission --settings {input.settings:q} --scores {input.scores:q} --tuned {input.tuned:q}"
        " --model {input.model:q}"
        " --converted {input.folder:q} --out {output.summary:q} --log {log:q}"
