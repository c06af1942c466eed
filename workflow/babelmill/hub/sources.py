"""Ask the Hugging Face Hub about repositories: commits, states, the models of an owner; explain errors in one line."""

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

import huggingface_hub
from huggingface_hub import ModelInfo, constants, errors
from huggingface_hub.utils import httpx

from babelmill.core.files import UserError
from babelmill.hub.client import asked_to_wait, cause, explained, one_line, patiently

LOGIN = "set HF_TOKEN or run `hf auth login`"
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Use:
    """What a repository is used for."""

    repo_type: str  # the Hub's word for its type
    noun: str  # our word for it, for errors
    key: str  # the configuration key that names the repository
    revision_key: str  # the key that names its revision
    instead: str  # what the user can name instead, for errors


DATASET = Use("dataset", "dataset", "corpus.hub", "corpus.revision", "name your own text in corpus.files")
SUITE = Use(
    "dataset", "suite", "suites.<name>.repository", "suites.<name>.revision", "name your own suites.<name>.files"
)
TASK = Use(
    "dataset", "dataset", "tasks.<name>.repository", "tasks.<name>.revision", "name your own files in tasks.<name>"
)
TOKENIZER = Use(
    "model", "tokenizer", "tokenizer.source", "tokenizer.revision", "name your own tokenizer.json in tokenizer.source"
)
MODEL = Use("model", "model", "model.source", "model.revision", "name a folder or another repository in model.source")
IDENTIFIER = Use("model", "model", "corpus.language_filter", "corpus.language_filter", "name py3langid there")


def resolve(use: Use, repository: str, revision: str) -> str:
    """Return the present commit of a branch or tag; offline, the commit that the cache has seen last."""
    if COMMIT.fullmatch(revision):
        return revision
    where: dict[str, Any] = {"repo_type": use.repo_type, "revision": revision}
    with explained(functools.partial(explanation, use, repository, revision)):
        if constants.is_offline_mode():
            return huggingface_hub.resolve_revision(repository, **where, local_files_only=True).resolved
        return str(patiently(lambda: huggingface_hub.HfApi().repo_info(repository, **where)).sha)


def explanation(use: Use, repository: str, revision: str, error: BaseException) -> str | None:
    """Return what happened and what to do, after an error of the Hub, the network or the disk; None for others."""
    error = cause(error)
    where = f"the {use.noun} {repository} on {constants.ENDPOINT}"
    cache = f"the Hugging Face cache, {constants.HF_HUB_CACHE} (see HF_HOME)"
    match error:
        case errors.HFValidationError():
            return f"{use.key} = {repository!r} is not the name of a repository: {one_line(error)}"
        case errors.GatedRepoError():
            return f"{where} is gated: accept its terms on its page, and {LOGIN}"
        case errors.RepositoryNotFoundError():
            return f"{where} does not exist or is private: {use.instead} or, if you may read it, {LOGIN}"
        case errors.RevisionNotFoundError():
            return f"{where} has no revision {revision!r}: correct {use.revision_key}"
        case errors.RemoteEntryNotFoundError():
            return f"{where} at {revision!r} has no such file: {one_line(error)}; {use.instead}"
        case errors.HfHubHTTPError() if error.response.status_code in (401, 403):
            return f"{where} cannot be read: {one_line(error)}; is the token right, of HF_TOKEN or `hf auth login`?"
        case errors.HfHubHTTPError() if error.response.status_code == 429:
            when = f"in {seconds:,} seconds" if (seconds := asked_to_wait(error)) else "later"
            return f"{where}: too many requests: {one_line(error)}; run the same command again {when}, or {LOGIN}"
        case httpx.TransportError() | errors.HfHubHTTPError():
            remedy = "check the network, or set HF_HUB_OFFLINE=1 to use the Hugging Face cache"
            return f"{where} cannot be reached: {one_line(error)}; {remedy}"
        case errors.CachedRepoTreeNotFoundError() if not constants.is_offline_mode():
            return f"the list of files of {where} is not in {cache}: is there a network, and space?"
        case (
            errors.OfflineModeIsEnabled()
            | errors.LocalEntryNotFoundError()
            | errors.RevisionResolutionError()
            | errors.CachedRepoTreeNotFoundError()
        ):
            remedy = "HF_HUB_OFFLINE is set: unset it, or run the same command once where there is a network"
            return f"{where} at {revision!r} is not in {cache}, and {remedy}"
        case OSError():
            return f"{where} cannot be written to {cache}: {error.strerror or one_line(error)}"
    return None


def models_of(owner: str) -> list[str]:
    """Return the names of the models of an account or an organisation, sorted; raise a UserError if it has none."""

    use = replace(MODEL, noun="models of")
    with explained(functools.partial(explanation, use, owner, "main")):
        found = sorted(model.id for model in huggingface_hub.HfApi().list_models(author=owner))
    if not found:
        raise UserError(
            f"{constants.ENDPOINT} shows no models of {owner!r}: correct the name or, if the models are private,"
            f" {LOGIN}"
        )
    return found


def state(use: Use, repository: str) -> ModelInfo | None:
    """Return the Hub's present information about a repository; None if the token can see no such repository."""
    with explained(functools.partial(explanation, use, repository, "main")):
        try:
            return patiently(lambda: huggingface_hub.HfApi().model_info(repository))
        except errors.GatedRepoError:
            raise
        except errors.RepositoryNotFoundError:
            return None
