"""Stage `submission`: submissions/{model}.json, the leaderboard's numbers and what is missing, and submissions/{model}/,
the files that the challenge takes.
"""


rule submission:
    """Collate the predictions of a model as its challenge does, check them, and compute the leaderboard's numbers."""
    input:
        unpack(named_inputs("submission")),
    output:
        "submissions/{model}.json",
        directory("submissions/{model}"),
    log:
        "logs/submission/{model}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=each_attempt(8000),
        runtime=each_attempt(60),
    shell:
        "python -m babelmill.submission {input.settings:q} --threads {threads}"
