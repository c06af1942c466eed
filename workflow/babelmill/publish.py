"""Bring a repository on the Hugging Face Hub to the state of `converted/{model}`, in one commit (stage `publish`).

    HF_TOKEN=... python -m babelmill.publish results/settings/publish/eng.json --threads 2

The client uploads the files that differ from the repository's, and makes no commit if none does. Files that an earlier
commit of this stage added, but the folder no longer has, are deleted. Everything else in the repository stays. Each
attempt commits on top of the commit that it read. So if the answer of the server was lost, the commit is not made
twice, and if somebody else made a commit in between, it is not lost.

For a model of a challenge, the summary of its submission is uploaded, too. Its predictions are not: they contain the
items of suites whose authors ask not to publish them in plain text (EWoK).

`HF_ENDPOINT` works as in huggingface_hub. The token comes from `HF_TOKEN` or `hf auth login`.
"""

import functools
import json
import logging
import sys
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, errors
from huggingface_hub.utils import httpx

from babelmill import __version__
from babelmill.config.snapshots import FOLDER
from babelmill.core import manifest, stage_entry
from babelmill.core.escape import line, some
from babelmill.core.files import UserError, read_object, sha256
from babelmill.core.stage_entry import Job
from babelmill.hub.client import cause, explained, may_pass, one_line, patiently
from babelmill.hub.credentials import hub_token
from babelmill.stages import PublishStage

log = logging.getLogger("babelmill.publish")

MAIN = "main"
SUBMISSION = "submission.json"  # what a model's submission to a challenge holds, without predictions


def explanation(repository: str, error: BaseException) -> str | None:
    """Return what happened and what to do, in one line, or None if this is not an error of the Hub or the network."""
    where = f"the repository {repository} on {constants.ENDPOINT}"
    error = cause(error)
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else 0
    if status in (401, 402, 403, 404):
        return (
            f"the token of HF_TOKEN or `hf auth login` may not write to {where} ({one_line(error)}): make one that"
            f" may, at {constants.ENDPOINT}/settings/tokens, or name your account or an organisation of yours"
            " (publish.username or --repo)"
        )
    if status and not may_pass(error):
        return f"{where} does not accept the files: {one_line(error)}"
    if isinstance(error, errors.HFValidationError):
        return f"{repository!r} is not a name of a repository: {one_line(error)}; correct publish.repo_template"
    if isinstance(error, ValueError) and "README.md" in str(error):
        return f"{where} does not accept the model card: {line(' '.join(str(error).split()), 400)}"
    if isinstance(error, httpx.TransportError | json.JSONDecodeError | OSError | RuntimeError):
        return (
            f"{where} could not be published: {one_line(error)}; run the same command again later, nothing is uploaded"
            " twice (if the network blocks Xet, set HF_HUB_DISABLE_XET=1)"
        )
    return None


def find_or_create(api: HfApi, name: str, private: bool) -> None:
    """Create a repository, or make it private, if needed. Nothing is made public."""
    api.create_repo(name, private=private, exist_ok=True)
    is_private = api.model_info(name).private
    if is_private and not private:
        raise UserError(
            f"the repository {name} on {constants.ENDPOINT} is private, but publish.private is false; make it"
            " public there if you want this, or set publish.private: true (by hand: --private)"
        )
    if private and not is_private:
        log.info("%s: made private", name)
        api.update_repo_settings(name, private=True)


def earlier_files(api: HfApi, name: str, commit: str | None, model: str) -> set[str]:
    """Return the files that the repository's manifest lists; raise a UserError if it is that of another model."""
    try:
        earlier = read_object(api.hf_hub_download(name, manifest.NAME, revision=commit))
        made_from, files = earlier["settings"]["name"], set(earlier["files"])
    except (UserError, KeyError, TypeError):
        log.warning("%s: its manifest.json is not ours; none of its files is deleted", name)
        return set()
    if made_from != model:
        raise UserError(
            f"the repository {name} contains the model {made_from}, not {model}; use {{model}} in"
            " publish.repo_template, so that each model has its own repository"
        )
    return files


def push(
    api: HfApi, name: str, model: str, files: dict[str, Path], message: str, branch: str, parent: str | None = None
) -> str:
    """Bring a branch of a repository to the state of some files. Return its commit. This is safe to repeat.

    `files`: {name in the repository: the file}. `parent`: the commit that the repository must be at, if there is
    something to commit; None allows any.
    """
    info = api.model_info(name, revision=branch)
    there = {file.rfilename for file in info.siblings or []}
    old = earlier_files(api, name, info.sha, model) if manifest.NAME in there else set[str]()
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(path, source) for path, source in files.items()
    ]
    operations += [CommitOperationDelete(path) for path in sorted((old & there) - files.keys())]
    about: dict[str, Any] = {"commit_message": message, "revision": branch, "parent_commit": parent or info.sha}
    try:
        commit = api.create_commit(name, operations, **about).oid
    except errors.HfHubHTTPError as error:
        if parent in (None, info.sha) or error.response.status_code != 412:
            raise
        raise UserError(f"{name} was at {parent}, but is at {info.sha} now: run the same command again") from error
    arrived = {file.rfilename for file in api.model_info(name, revision=commit).siblings or []}
    if lost := sorted(files.keys() - arrived):
        raise UserError(f"{name}: {some(lost)} did not arrive; does a .gitignore there name it?")
    log.info("%s, branch %s: commit %s", name, branch, commit)
    return commit


def files_of(folder: Path, about: dict[str, Any]) -> dict[str, Path]:
    """Return {name: file} of what the manifest of a folder lists, and the manifest."""
    return {name: folder / name for name in [*about["files"], manifest.NAME]}


def publish_folder(
    folder: Path,
    repository: str,
    model: str,
    private: bool,
    message: str = "",
    parent: str | None = None,
    submission: Path | None = None,
) -> dict[str, Any]:
    """Verify a folder and push it. Return the content of the receipt.

    `{username}` in `repository` stands for the token's account. `message` replaces the usual message of the commit. For
    `parent`, see `push`. `submission`: the summary of a submission, which becomes the file SUBMISSION.
    """
    api, message = HfApi(token=hub_token()), message or f"{model}, by Babelmill {__version__}"
    verified, branches = manifest.verify(folder), {}
    files = files_of(folder, verified) | ({SUBMISSION: submission} if submission else {})
    with explained(lambda error: explanation(repository, error)):
        if "{username}" in repository:
            repository = repository.replace("{username}", patiently(api.whoami)["name"])
        patiently(lambda: find_or_create(api, repository, private))
        pushed = functools.partial(push, api, repository, model)
        commit = patiently(lambda: pushed(files, message, MAIN, parent))
        for name in verified["figures"].get("snapshots", {}):
            place = folder / FOLDER / name
            snapshot = files_of(place, manifest.verify(place, within=folder))
            patiently(functools.partial(api.create_branch, repository, branch=name, exist_ok=True))
            branches[name] = patiently(functools.partial(pushed, snapshot, f"{message}: {name}", name))
    return {
        "repository": repository,
        "private": private,
        "url": f"{constants.ENDPOINT}/{repository}",
        "commit": commit,
        "files": {name: sha256(path) for name, path in files.items()},
    } | ({"branches": branches} if branches else {})


def publish(job: Job[PublishStage]) -> None:
    """Publish a model's folder, and write the receipt."""
    settings, folder = job.settings, job.settings.folder("converted")
    submission = next(iter(settings.folders("submission")), None)
    where = folder, settings.repository, settings.name, settings.publish.private
    published = publish_folder(*where, submission=submission)
    about = {"stage": "publish", "version": __version__, "settings": settings.raw}
    about |= {"figures": {"summary": published["url"]}}
    upstream = {each.as_posix(): manifest.digest(each) for each in (folder, submission) if each}
    manifest.write_sealed(job.out, about | published | {"upstream": upstream})
    log.info("published: %s", published["url"])


if __name__ == "__main__":
    sys.exit(stage_entry.main(PublishStage, publish, __doc__))
