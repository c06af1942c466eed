"""List the repositories of an owner on the Hugging Face Hub, and look up the state of one."""

import functools
from collections.abc import Iterator
from typing import Any

import huggingface_hub
from huggingface_hub import ModelInfo, constants, errors
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status, httpx

from babelmill.core.files import UserError
from babelmill.hub.client import QUICK, explained, one_line, patiently
from babelmill.hub.sources import Use, explanation


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
