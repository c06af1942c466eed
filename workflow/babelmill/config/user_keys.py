"""Check the keys of the user's configuration: unknown keys and secrets are refused everywhere."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from babelmill.config.schema import SECTIONS, LanguageEntry, ModelEntry, User
from babelmill.config.wording import LONGEST, meant_key
from babelmill.core.escape import line
from babelmill.core.files import UserError

SECRET = re.compile(r"(^|_)(token|api_key|secret|password)$", re.IGNORECASE)


def check_keys(user: dict[str, Any], origin: Callable[[Sequence[str]], str | None]) -> None:
    """Refuse unknown keys and secrets anywhere in the user's layers, with the nearest known key.

    `origin` returns the label of the source that sets a key.
    """

    def check(values: Any, known: Collection[str], *path: str) -> None:
        prefix = "".join(f"{part}." for part in path)
        if not isinstance(values, dict):
            raise UserError(f"{origin(path)}: {'.'.join(path)} = {line(repr(values), LONGEST)}: keys are expected")
        for key in values:
            where = origin((*path, key))
            if SECRET.search(str(key)):
                raise UserError(
                    f"{where}: {prefix}{key}: a secret does not belong in a configuration file; set it as an"
                    " environment variable (HF_TOKEN, WANDB_API_KEY)"
                )
            if key not in known:
                meant = meant_key(prefix, key, values[key], known, where)
                raise UserError(f"{where}: unknown key {prefix}{key}{meant}")

    check(user, {*User.model_fields, *SECTIONS})
    for group in ("models", "languages", "batches"):
        if not isinstance(user.get(group, {}), dict):
            raise UserError(
                f"{origin((group,))}: {group} = {line(repr(user[group]), LONGEST)}: a mapping from names to values is"
                " expected"
            )
    for group, entry_type in (("models", ModelEntry), ("languages", LanguageEntry)):
        for name, entry in user.get(group, {}).items():
            check(entry, entry_type.model_fields, group, name)
    for prefix, values in [
        ((), user),
        *((("models", name), entry) for name, entry in user.get("models", {}).items()),
        *((("languages", name), entry) for name, entry in user.get("languages", {}).items()),
    ]:
        for section, section_type in SECTIONS.items():
            if section in values:
                check(values[section], section_type.model_fields, *prefix, section)
