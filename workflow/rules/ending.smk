"""What a run does before its first job and, if it fails, after its last."""

import re

from babelmill import ending


def asked_for():
    """The models of this run's targets."""
    targets = [Path(target).as_posix() for target in workflow.dag_settings.targets] or ["all"]
    form = re.compile(r"converted/(.+)|published/(.+)\.json|(?:publish_)?(\w+)")
    names = [next(filter(None, found.groups())) for found in map(form.fullmatch, targets) if found]
    return CONFIG.models_of([name for name in names if name in {"all", *CONFIG.batches} or CONFIG.is_model(name)])


onstart:
    ending.cancel_leftovers()


onerror:
    print(ending.summary(log, CONFIG, asked_for()), file=sys.stderr)
