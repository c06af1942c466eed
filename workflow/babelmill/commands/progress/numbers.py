"""Say which numbers of its challenge's leaderboard a model has scores for, and why others are missing."""

from babelmill.config.resolve import Configuration
from babelmill.config.submissions import read_rules, submission_of
from babelmill.core import manifest
from babelmill.graph import reasons_to_submit
from babelmill.stages import STAGES


def numbers_of_challenge(configuration: Configuration, model: str) -> str:
    """Return which numbers a model has, and which are missing; "" if it has nothing to submit to a challenge.

    Several reasons why numbers are missing have a line each.
    """
    reasons, challenge = reasons_to_submit(configuration, model), configuration.challenge_of(model)
    if reasons is None or challenge is None:
        return ""
    rules, about = read_rules(challenge.submission), submission_of(configuration, model)
    missing, tuned = about["missing"], about.get("tuned", {})
    there: list[str] = []
    lacking: dict[str, list[str]] = {}
    for each in rules.numbers.values():
        why = [
            missing.get(task) or not_scored(model, rules.tasks[task].suite, tuned.get(task, {})) for task in each.tasks
        ]
        if reason := "; ".join(dict.fromkeys(filter(None, why))):
            lacking.setdefault(reason, []).append(each.title)
        else:
            there.append(each.title)
    words = [f"{len(there)} of {len(rules.numbers)} numbers{': ' if there else ''}{', '.join(there)}"]
    words += [f"missing: {', '.join(titles)} ({reason})" for reason, titles in lacking.items()]
    path = STAGES["submission"].record(model, "")
    if path.is_file():
        score = manifest.read(path)["figures"]["leaderboard"]["score"]
        words.append(f"{path}: {score:.2f} on the leaderboard{', outdated' if reasons else ''}")
    return ("\n  " if len(lacking) > 1 else "; ").join(words)


def not_scored(model: str, suite: str | None, tuned: dict[str, str]) -> str:
    """Return that a model has no scores on a suite, or by jobs of fine-tuning, yet; "" if it has all of them."""
    records = [STAGES["score"].record(model, suite)] if suite else []
    records += [STAGES["tune"].record(model, part) for part in tuned.values()]
    return "" if all(record.is_file() for record in records) else "not scored yet"
