"""List what was measured of a model of another project, which is not trained here (stage `baseline`).

    python -m babelmill.baseline results/settings/baseline/gpt2.json

The configuration names it: `models: {gpt2: {languages: [eng], model: {source: openai-community/gpt2}, train: none}}`.
It is evaluated, scored and tuned as our own models are. This writes `baselines/{model}.json`, by which `compare` finds
the results.
"""

import sys

from babelmill.core import manifest, stage_entry
from babelmill.core.files import read_json
from babelmill.core.stage_entry import Job
from babelmill.evaluation.metrics import in_words
from babelmill.stages import BaselineStage


def run(job: Job[BaselineStage]) -> None:
    """Write the list, with the bits per byte in one line."""
    settings = job.settings
    upstream = [folder for role in settings.made_from for folder in settings.folders(role)]
    for folder in upstream:
        manifest.verify(folder)
    evaluation = read_json(settings.folder("evaluation") / "evaluation.json")
    figures = {"summary": in_words(evaluation, next(iter(evaluation["variants"])))}
    manifest.write(job.out.parent, settings, [], upstream, figures, name=job.out.name)


if __name__ == "__main__":
    sys.exit(stage_entry.main(BaselineStage, run, __doc__))
