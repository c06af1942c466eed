"""What a run does before its first job and, if it fails, after its last."""

import re

from babelmill.commands import run_summary


def asked_for():
    """The models of this run's targets."""
    targets = [Path(target).as_posix() for target in workflow.dag_settings.targets] or ["all"]
    form = re.compile(r"converted/(.+)|published/(.+)\.json|(?:publish_)?(\w+)")
    names = [next(filter(None, found.groups())) for found in map(form.fullmatch, targets) if found]
    return CONFIG.models_of([name for name in names if name in {"all", *CONFIG.batches} or CONFIG.is_model(name)])


onstart:
    run_summary.cancel_leftovers()


onerror:
    print(run_summary.summary(log, CONFIG, asked_for()), file=sys.stderr)
