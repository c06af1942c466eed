"""Stage `corpus`: documents of a language's text, for training and for validation.

The text is local files, built in, or a download. The configuration may ask for a model that finds languages, and for
suites whose items no document may hold.
"""

@one_line
def memory_of_corpus(wildcards, attempt):
    """Return the MB of `corpus`: some bytes of each document, and in each process the model that finds languages."""
    asked = GRAPH.named("corpus", wildcards.result).asked
    gigabytes = sum(each["bytes"] for each in asked["sources"].values() if isinstance(each, dict)) / 1e9
    return round(8000 + 250 * gigabytes + 9 * identifiers.megabytes(CONFIG, asked["languages"][0])) * attempt


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
