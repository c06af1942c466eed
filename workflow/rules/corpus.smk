"""Stage `corpus`: documents of a language's text, for training and for validation.

The text is local files, built in, or a download. The configuration may ask for a model that finds languages, and for
suites whose items no document may hold.
"""


rule corpus:
    """Read, clean and deduplicate a language's text, and set the validation documents aside."""
    input:
        unpack(inputs("corpus")),
    output:
        "results/corpus/{result}/manifest.json",
    log:
        "logs/corpus/{result}.log",
    conda:
        "../../envs/babelmill.yaml"
    threads: 8
    resources:
        mem_mb=memory_of_corpus,
        runtime=each_attempt(240),
    shell:
        "python -m babelmill.corpus {input.settings:q} --threads {threads}"
