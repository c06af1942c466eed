"""Ask the Hugging Face Hub about repositories: commits, states, the models of an owner; explain errors in one line."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

import huggingface_hub
from huggingface_hub import ModelInfo, constants, errors
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status, httpx

from babelmill.core.files import UserError
from babelmill.hub.client import QUICK, asked_to_wait, commit_of, explained, one_line, patiently

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclasses.dataclass(frozen=True)
class Use:
    """What a repository is used for."""

    repo_type: str  # the Hub's word for its type
    noun: str  # our word for it, for errors
    key: str  # the configuration key that names the repository
    revision_key: str  # the key that names its revision
    instead: str  # what the user can name instead, for errors
    fetch: str  # a command that fetches it where there is a network


DATASET = Use(
    repo_type="dataset",
    noun="dataset",
    key="corpus.hub",
    revision_key="corpus.revision",
    instead="name your own text in corpus.files or another dataset in corpus.hub",
    fetch="snakemake all --until download",
)
SUITE = Use(
    repo_type="dataset",
    noun="suite",
    key="suites.<name>.repository",
    revision_key="suites.<name>.revision",
    instead="name your own files in suites.<name>.files",
    fetch="snakemake all --until suite",
)
TASK = Use(
    repo_type="dataset",
    noun="dataset",
    key="tasks.<name>.repository",
    revision_key="tasks.<name>.revision",
    instead="name your own files in tasks.<name>.train and tasks.<name>.test, or another dataset",
    fetch="snakemake all --until task",
)
TOKENIZER = Use(
    repo_type="model",
    noun="tokenizer",
    key="tokenizer.source",
    revision_key="tokenizer.revision",
    instead="name your own tokenizer.json or another repository in tokenizer.source",
    fetch="hf download REPOSITORY tokenizer.json",
)
MODEL = Use(
    repo_type="model",
    noun="model",
    key="model.source",
    revision_key="model.revision",
    instead="name a folder or another repository in model.source",
    fetch="hf download REPOSITORY",
)
IDENTIFIER = Use(
    repo_type="model",
    noun="model",
    key="corpus.language_filter",
    revision_key="corpus.language_filter",
    instead="name py3langid, which is installed, or a file of fastText in corpus.language_filter.model",
    fetch="snakemake all --until identifier",
)


def resolve(use: Use, repository: str, revision: str) -> str:
    """Return the present commit of a branch or tag; offline, the commit that the cache has seen last."""
    if COMMIT.fullmatch(revision):
        return revision
    with explained(functools.partial(explanation, use, repository, revision)):
        if constants.is_offline_mode():
            found = huggingface_hub.resolve_revision(
                repository, repo_type=use.repo_type, revision=revision, local_files_only=True
            )
            return found.resolved
        api = huggingface_hub.HfApi()
        info = patiently(lambda: api.repo_info(repository, repo_type=use.repo_type, revision=revision))
        return commit_of(repository, info.sha)


def explanation(use: Use, repository: str, revision: str, error: BaseException) -> str | None:
    """Return what happened and what to do, after an error of the Hub, the network or the disk; None for others."""
    while isinstance(error, errors.LocalEntryNotFoundError | errors.RevisionResolutionError) and error.__cause__:
        error = error.__cause__
    where = f"the {use.noun} {repository} on {constants.ENDPOINT}"
    cache = f"the Hugging Face cache, {constants.HF_HUB_CACHE} (see HF_HOME)"
    match error:
        case errors.GatedRepoError():
            return f"{where} is gated: accept its terms on its page, and set HF_TOKEN to a token of that account"
        case errors.RepositoryNotFoundError():
            return f"{where} does not exist or is private: {use.instead}, or set HF_TOKEN to a token that may read it"
        case errors.RevisionNotFoundError():
            return f"{where} has no revision {revision!r}: correct {use.revision_key}"
        case errors.RemoteEntryNotFoundError():
            return f"{where} at {revision!r} has no such file: {one_line(error)}; {use.instead}"
        case errors.HfHubHTTPError() if error.response.status_code in (401, 403):
            return f"{where} cannot be read: {one_line(error)}; is HF_TOKEN right?"
        case errors.HfHubHTTPError() if error.response.status_code == 429:
            return (
                f"{where}: too many requests: {one_line(error)}; {waiting(error)}, and what is downloaded already stays"
                " (with HF_TOKEN the Hub allows more requests)"
            )
        case errors.CachedRepoTreeNotFoundError() if not constants.is_offline_mode():
            return (
                f"the list of files of {where} could not be written to {cache}; free some space, or raise the limit of"
                " file sizes (`ulimit -f`)"
            )
        case (
            errors.OfflineModeIsEnabled()
            | errors.LocalEntryNotFoundError()
            | errors.RevisionResolutionError()
            | errors.CachedRepoTreeNotFoundError()
        ):
            return (
                f"{where} is not in the Hugging Face cache, and HF_HUB_OFFLINE is set:"
                f" unset it, or download on a machine with a network (`{use.fetch.replace('REPOSITORY', repository)}`)"
            )
        case httpx.TransportError() | errors.HfHubHTTPError():
            return (
                f"{where} cannot be reached: {one_line(error)}; check the network, or set HF_HUB_OFFLINE=1"
                " to use the Hugging Face cache"
            )
        case errors.HFValidationError():
            return f"{use.key} = {repository!r} is not the name of a repository: {one_line(error)}"
        case OSError() if error.strerror:
            return f"{where} cannot be written to {cache}: {error.strerror}"
        case OSError() if "Consistency check failed" in str(error):
            return f"{where} sent less data than it announced, in all attempts; try later, or use another network"
    return None


def waiting(error: BaseException) -> str:
    """Return when to run the same command again after the Hub refused a request because there were too many."""
    seconds = asked_to_wait(error)
    return f"run the same command again {f'in {seconds:,} seconds' if seconds else 'later'}"


def models_of(owner: str) -> list[str]:
    """Return the names of the models of an account or an organisation, sorted; raise a UserError if it has none."""
    with explained(_unlisted):
        found = sorted(
            model["id"] for page in _pages(f"{constants.ENDPOINT}/api/models?author={owner}") for model in page
        )
    if not found:
        raise UserError(
            f"{constants.ENDPOINT} shows no models of {owner!r}: correct the name or, if the models are private, set"
            " HF_TOKEN to a token that may read them"
        )
    return found


def _pages(address: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the pages of a listing. (If the Hub cannot be reached, `HfApi.list_models` would wait for 30 s.)"""
    following: str | None = address
    while following:
        response = patiently(lambda address=following: _get(address), QUICK)
        following = response.links.get("next", {}).get("url")
        yield response.json()


def _get(address: str) -> httpx.Response:
    response = get_session().get(address, headers=build_hf_headers())
    hf_raise_for_status(response)
    return response


def _unlisted(error: BaseException) -> str | None:
    match error:
        case errors.OfflineModeIsEnabled():
            return "only the Hub can list the models of an owner, but HF_HUB_OFFLINE is set: unset it"
        case errors.HfHubHTTPError() if error.response.status_code in (401, 403):
            return f"{constants.ENDPOINT} does not list models: {one_line(error)}; is HF_TOKEN right?"
        case httpx.TransportError() | errors.HfHubHTTPError():
            return f"{constants.ENDPOINT} cannot be reached: {one_line(error)}; check the network and HF_ENDPOINT"
    return None


def state(use: Use, repository: str) -> ModelInfo | None:
    """Return the Hub's present information about a repository; None if HF_TOKEN can see no such repository."""
    api = huggingface_hub.HfApi()
    with explained(functools.partial(explanation, use, repository, "main")):
        try:
            return patiently(lambda: api.model_info(repository))
        except errors.GatedRepoError:
            raise
        except errors.RepositoryNotFoundError:
            return None
