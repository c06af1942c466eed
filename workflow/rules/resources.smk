"""What jobs may take: memory and time, which grow with each attempt, and GPUs."""


def gpus(stage, most):
    """Return a resource of a stage: the GPUs of the training that a result follows from, and no more than `most`."""

    @one_line
    def of(wildcards):
        name = ".".join(filter(None, (wildcards.get("result", wildcards.get("model")), wildcards.get("input"))))
        return min(most, read_json(run_settings_of(GRAPH.find(stage, name).training.settings_file))["gpus"])

    return of


def each_attempt(amount):
    """Return a resource: an amount, and twice, three times, ... as much when `retries` repeat the job."""
    return lambda wildcards, attempt: amount * attempt


@one_line
def memory_of_corpus(wildcards, attempt):
    """Return the MB of `corpus`: some bytes of each document, and in 9 processes a model that finds languages (GlotLID)."""
    asked = GRAPH.find("corpus", wildcards.result).asked
    gigabytes = sum(each["bytes"] for each in asked["sources"].values() if isinstance(each, dict)) / 1e9
    small = "version" in asked.get("identification", {"version": None})  # none, or py3langid
    return round(8000 + 250 * gigabytes + (0 if small else 16_000)) * attempt
