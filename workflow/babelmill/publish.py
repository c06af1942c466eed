"""Bring a repository on the Hugging Face Hub to the state of `converted/{model}`, in one commit (stage `publish`).

    HF_TOKEN=... python -m babelmill.publish results/settings/publish/eng.json --threads 2

The files in the repository are compared by hash with the folder's manifest. Files that differ are uploaded. Files that
an earlier commit of this stage added, but the folder no longer has, are deleted. Everything else in the repository
stays. If nothing differs, no commit is made. Each attempt begins with this comparison, and commits on top of the commit
that it read. So if the answer of the server was lost, the commit is not made twice, and if somebody else made a commit
in between, it is not lost.

For a model of a challenge, the summary of its submission is uploaded, too. Its predictions are not: they contain the
items of suites whose authors ask not to publish them in plain text (EWoK).

`HF_ENDPOINT` works as in huggingface_hub. The token comes only from `HF_TOKEN`.
"""

import functools
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo, constants, errors
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import httpx
from huggingface_hub.utils._runtime import is_xet_available

from babelmill import __version__
from babelmill.config.snapshots import FOLDER
from babelmill.core import escape, manifest, stage_entry
from babelmill.core.escape import line
from babelmill.core.files import UserError, read_object, sha256
from babelmill.core.stage_entry import Job
from babelmill.hub.client import cause, commit_of, explained, git_oid, may_pass, one_line, patiently
from babelmill.hub.credentials import hub_token
from babelmill.stages import PublishStage

log = logging.getLogger("babelmill.publish")

MAIN = "main"
SUBMISSION = "submission.json"  # what a model's submission to a challenge holds, without predictions
Operation = CommitOperationAdd | CommitOperationDelete


def explanation(repository: str, error: BaseException) -> str | None:
    """Return what happened and what to do, in one line, or None if this is not an error of the Hub or the network."""
    where = f"the repository {repository} on {constants.ENDPOINT}"
    if "{username}" in repository:  # the request for the account's name failed
        where = f"the repository {repository.split('/')[1]} of the account of HF_TOKEN on {constants.ENDPOINT}"
    error = cause(error)
    match error:
        case errors.HFValidationError():
            return f"{repository!r} is not a name of a repository: {one_line(error)}; correct publish.repo_template"
        case errors.HfHubHTTPError() if error.response.status_code == 401:
            return (
                f"{constants.ENDPOINT} does not accept the token in HF_TOKEN ({one_line(error)}): it may have been"
                f" deleted or have expired; make a new one that may write at {constants.ENDPOINT}/settings/tokens"
            )
        case errors.HfHubHTTPError() if error.response.status_code in (402, 403, 404):
            return (
                f"the token in HF_TOKEN may not write to {where} ({one_line(error)}): give it write permission, or name"
                " your account or an organisation of yours (publish.username, --repo or --repo-template)"
            )
        case errors.HfHubHTTPError() if not may_pass(error):
            return f"{where} does not accept the files: {one_line(error)}"
        case errors.HfHubHTTPError() | httpx.TransportError() | json.JSONDecodeError():
            return (
                f"{where} could not be published: {one_line(error)}; run the same command again later; it does not"
                " upload again what is already uploaded"
            )
        case ValueError() if "README.md" in str(error):
            return f"{where} does not accept the model card: {line(' '.join(str(error).split()), 400)}"
    return None


@dataclass
class Repository:
    """A repository on the Hub, and what is published there."""

    api: HfApi  # the client
    name: str  # the name of the repository, with that of its owner
    model: str  # the name of the model
    private: bool  # whether the repository is to be private

    def find_or_create(self) -> ModelInfo:
        """Return the repository's state. If needed, first create it or make it private. Nothing is made public."""
        try:
            info = self.api.model_info(self.name)
        except errors.RepositoryNotFoundError as error:
            if error.response.status_code != 404:
                raise
            # 409 if somebody else just created it: the next attempt finds it
            self.api.create_repo(self.name, private=self.private)
            info = self.api.model_info(self.name)
        if info.private and not self.private:
            raise UserError(
                f"the repository {self.name} on {constants.ENDPOINT} is private, but publish.private is false; make it"
                " public there if you want this, or set publish.private: true (by hand: --private)"
            )
        if self.private and not info.private:
            log.info("%s: made private", self.name)
            self.api.update_repo_settings(self.name, private=True)
        return info

    def listing(self, commit: str) -> dict[str, RepoFile]:
        """Return the files of the repository at a commit."""
        entries = self.api.list_repo_tree(self.name, revision=commit, recursive=True)
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    def earlier_files(self, commit: str, there: dict[str, RepoFile]) -> set[str]:
        """Return the files that the repository's manifest lists; raise a UserError if it is that of another model."""
        if manifest.NAME not in there:
            return set()
        path = self.api.hf_hub_download(self.name, manifest.NAME, revision=commit)
        try:
            earlier = read_object(path)
            name, files = earlier["settings"]["name"], set(earlier["files"])
        except (UserError, KeyError, TypeError):
            log.warning("%s: its manifest.json is not ours; none of its files is deleted", self.name)
            return set()
        if name != self.model:
            raise UserError(
                f"the repository {self.name} contains the model {name}, not {self.model}; use {{model}} in"
                " publish.repo_template, so that each model has its own repository"
            )
        return files

    def commit(self, operations: list[Operation], message: str, parent: str, branch: str) -> str:
        """Make a commit, and return it. Files are uploaded through Xet if hf_xet is installed; if it fails, without it.

        A Hub may have no Xet, and a firewall may block its servers. hf_xet raises Python's built-in exceptions.
        """
        create = functools.partial(
            self.api.create_commit, self.name, operations, commit_message=message, parent_commit=parent, revision=branch
        )
        try:
            return create().oid
        except (OSError, RuntimeError) as error:
            if isinstance(cause(error), errors.HfHubHTTPError | httpx.TransportError) or not is_xet_available():
                raise
            log.warning("upload through Xet failed: %s; uploading without it", one_line(error))
            constants.HF_HUB_DISABLE_XET = True
        return create().oid

    def push(
        self,
        files: dict[str, tuple[Path, str]],
        message: str,
        parent: str | None = None,
        branch: str = MAIN,
    ) -> str:
        """Bring a branch of the repository to the state of some files. Return its commit. This is safe to repeat.

        `files`: {name in the repository: (the file, its sha256)}. `parent`: the commit that the repository must be at,
        if there is something to commit; None allows any.
        """
        info = self.find_or_create()
        if branch != MAIN:
            self.api.create_branch(self.name, branch=branch, exist_ok=True)
            info = self.api.model_info(self.name, revision=branch)
        head = commit_of(self.name, info.sha)
        where = self.name if branch == MAIN else f"{self.name}, branch {branch}"
        there = self.listing(head)
        earlier = self.earlier_files(head, there)
        changed = differing(files, there)
        gone = sorted((earlier & there.keys()) - files.keys())
        if not changed and not gone:
            log.info("%s is up to date at %s", where, head)
            return head
        if parent not in (None, head):
            raise UserError(f"{self.name} was at {parent[:12]}, but is at {head[:12]} now: run the same command again")
        log.info("%s: %d of %d files differ, %d are deleted", where, len(changed), len(files), len(gone))
        uploads = [CommitOperationAdd(name, files[name][0]) for name in changed]
        commit = self.commit([*uploads, *map(CommitOperationDelete, gone)], message, head, branch)
        if left := differing(files, self.listing(commit)):
            raise UserError(
                f"the repository {self.name} did not accept {escape.some(left)}: if a .gitignore in it names them,"
                " delete the .gitignore and run the same command again"
            )
        log.info("%s: commit %s", where, commit)
        return commit


def differing(files: dict[str, tuple[Path, str]], there: dict[str, RepoFile]) -> list[str]:
    """Return which files ({name: (the file, its sha256)}) are missing or different in the repository."""

    def same(name: str) -> bool:
        entry, (path, digest) = there.get(name), files[name]
        if entry is None:
            return False
        if entry.lfs:
            return entry.lfs.sha256 == digest
        return entry.size == path.stat().st_size and entry.blob_id == git_oid(path)

    return [name for name in files if not same(name)]


def files_of(folder: Path, about: dict[str, Any]) -> dict[str, tuple[Path, str]]:
    """Return {name: (the file, its sha256)} of what the manifest of a folder lists."""
    return {name: (folder / name, entry["sha256"]) for name, entry in about["files"].items()}


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
    token = hub_token()
    verified = manifest.verify(folder)
    files = files_of(folder, verified) | {manifest.NAME: (folder / manifest.NAME, sha256(folder / manifest.NAME))}
    if submission:
        files[SUBMISSION] = submission, sha256(submission)
    api, message = HfApi(token=token), message or f"{model}, by Babelmill {__version__}"
    with explained(functools.partial(explanation, repository)):
        if "{username}" in repository:
            repository = repository.replace("{username}", patiently(api.whoami)["name"])
    with explained(functools.partial(explanation, repository)):
        target = Repository(api, repository, model, private)
        commit = patiently(lambda: target.push(files, message, parent))
        branches = {}
        for name, digest in verified["figures"].get("snapshots", {}).items():
            place = folder / FOLDER / name
            snapshot = files_of(place, manifest.verify(place, within=folder))
            given = snapshot | {manifest.NAME: (place / manifest.NAME, digest)}, f"{message}: {name}", None, name
            branches[name] = patiently(functools.partial(target.push, *given))
    return {
        "repository": repository,
        "private": private,
        "url": f"{constants.ENDPOINT}/{repository}",
        "commit": commit,
        "files": {name: digest for name, (_, digest) in files.items()},
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
