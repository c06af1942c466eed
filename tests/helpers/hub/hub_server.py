"""Run a Hugging Face Hub on this machine for tests, with the endpoints that the real client uses.

    with HubServer() as hub:
        commit = hub.commit("datasets/org/name", {"data/train.jsonl": b"..."})
        ... run with HF_ENDPOINT=hub.url ...

Files of `LFS` suffixes are served as the Hub serves large files: the resolve endpoint redirects to another path (the
CDN's), which knows ranges and sees no token. `hub.faults` breaks answers on purpose, `hub.log` holds every request.
Uploads (`hub_uploads.py`) change the state, and are refused where anything about them is wrong.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from helpers.hub import hub_uploads as uploads
from helpers.hub.hub_uploads import LFS, git_oid, refuse, token_of


@dataclasses.dataclass
class Fault:
    """Describes what goes wrong for the first `times` requests `METHOD path` that match `pattern`.

    `status` answers with that code, `body` and `headers`; `cut` closes the connection after so many bytes of the body;
    `drop` closes the connection without an answer, after the request took effect; `meanwhile` is called before the
    request is answered as usual.
    """

    pattern: str
    times: int = 1
    status: int | None = None
    cut: int | None = None
    drop: Literal["after"] | None = None
    body: bytes = b'{"error": "broken on purpose"}'
    headers: dict[str, str] | None = None
    meanwhile: Callable[[], object] | None = None


@dataclasses.dataclass
class Repository:
    """Holds commits (revision -> files) and branches of a repository, and who may read it.

    `objects` is its storage of large files by sha256, `history` what each uploaded commit said.
    """

    commits: dict[str, dict[str, bytes]] = dataclasses.field(default_factory=dict)
    branches: dict[str, str] = dataclasses.field(default_factory=dict)
    objects: dict[str, bytes] = dataclasses.field(default_factory=dict)
    history: list[dict] = dataclasses.field(default_factory=list)
    private: bool = False
    gated: bool = False


class HubServer:
    """Serves repositories under `url` until the `with` block ends.

    `tokens` are those it accepts, of the account `ada`, which may write to what is ada's and lab's.
    """

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.tokens = {"hf_good"}
        self.namespaces = ("ada", "lab")
        self.faults: list[Fault] = []
        self.log: list[str] = []
        self.sent = 0  # bytes of files
        self.backwards = False  # whether listings are in the opposite order
        self.tokens_seen: list[tuple[str, str | None]] = []
        self._lock = threading.Lock()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
        self._http = make_server("127.0.0.1", 0, Request.application(self._answer), threaded=True)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self.cdn = f"http://localhost:{self._http.server_port}"  # another origin, as the Hub's is

    def __enter__(self):
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()

    def commit(self, name: str, files: dict[str, bytes], branch: str = "main", **access) -> str:
        """Make these files the whole content of a branch. Return the commit."""
        repository = self.repositories.setdefault(name, Repository())
        for key, value in access.items():
            setattr(repository, key, value)
        repository.objects |= {hashlib.sha256(data).hexdigest(): data for data in files.values()}
        state = sorted((path, hashlib.sha256(data).hexdigest()) for path, data in files.items())
        commit = hashlib.sha1(json.dumps([state, len(repository.commits)]).encode()).hexdigest()
        repository.commits[commit] = dict(files)
        repository.branches[branch] = commit
        return commit

    def count(self, pattern: str) -> int:
        """Return how many requests matched."""
        return sum(re.search(pattern, line) is not None for line in self.log)

    def _answer(self, request: Request) -> Response:
        """Find the fault that applies, if any, then the endpoint."""
        line = f"{request.method} {urllib.parse.unquote(request.environ['RAW_URI'])}"
        request.get_data()  # also where it is not read: who still sends would not see the answer
        with self._lock:  # none is for more requests than it says
            self.log.append(line)
            self.tokens_seen.append((line, token_of(request)))
            matching = (fault for fault in self.faults if fault.times > 0 and re.search(fault.pattern, line))
            fault = next(matching, Fault(""))
            fault.times -= 1
        if fault.meanwhile:
            fault.meanwhile()
        if fault.status:
            return Response(fault.body, f"{fault.status} {HTTPStatus(fault.status).phrase}", fault.headers)
        endpoint, found = ROUTES.bind_to_environ(request.environ).match()
        with self._lock:
            answer = endpoint(self, request, **found)
        if fault.drop:
            request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        if not isinstance(answer, Response):
            return Response(json.dumps(answer), mimetype="application/json")
        if fault.cut:
            answer.response = [answer.data[: fault.cut]]  # fewer bytes than the header announces
        return answer


def readable(hub: HubServer, request: Request, kind: str, name: str, revision: str, content: bool = False):
    """Return a repository and a commit of it, or answer as the Hub does to who may not see it."""
    repository, token = hub.repositories.get(f"{kind}/{name}"), token_of(request)
    if token and token not in hub.tokens:
        refuse(401, "Invalid user token.")
    if repository is None or (repository.private and not token):
        refuse(404 if token else 401, "Repository not found", "RepoNotFound")
    if repository.gated and content and not token:
        refuse(401, "gated", "GatedRepo")
    return repository, revision if revision in repository.commits else uploads.head_of(repository, revision)


def describe(hub: HubServer, request: Request, kind: str, name: str, revision: str = "main"):
    repository, commit = readable(hub, request, kind, name, revision)
    siblings = [{"rfilename": file} for file in sorted(repository.commits[commit])]
    return {"id": name, "sha": commit, "private": repository.private, "siblings": siblings, "tags": []}


def page(request: Request, entries: list, size: int) -> Response:
    """Return a page of a list, and where the next one is."""
    start, headers = request.args.get("cursor", 0, int), {}
    if start + size < len(entries):
        query = urllib.parse.urlencode(request.args.to_dict() | {"cursor": start + size})
        headers["Link"] = f'<{request.base_url}?{query}>; rel="next"'
    return Response(json.dumps(entries[start : start + size]), headers=headers, mimetype="application/json")


def list_models(hub: HubServer, request: Request):
    """Return the models of an owner that the token may see, 3 per page."""
    if (token := token_of(request)) and token not in hub.tokens:
        refuse(401, "Invalid user token.")
    names = [
        name.removeprefix("models/")
        for name, repository in hub.repositories.items()
        if name.startswith(f"models/{request.args['author']}/") and (token or not repository.private)
    ]
    return page(request, [{"id": name, "_id": name, "tags": []} for name in names], 3)


def list_files(hub: HubServer, request: Request, kind: str, name: str, revision: str):
    """Return the listing with folders, 10 entries per page."""
    repository, commit = readable(hub, request, kind, name, revision)
    files = repository.commits[commit]
    folders = {parent.as_posix() for file in files for parent in PurePosixPath(file).parents} - {"."}
    entries = [{"type": "directory", "path": path, "size": 0, "oid": git_oid(path.encode())} for path in folders]
    for path, data in files.items():
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_oid(data)}
        if path.endswith(LFS):
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        entries.append(entry)
    return page(request, sorted(entries, key=lambda entry: entry["path"], reverse=hub.backwards), 10)


def resolve(hub: HubServer, request: Request, name: str, revision: str, file: str, kind: str = "models"):
    repository, commit = readable(hub, request, kind, name, revision, content=True)
    data, headers = repository.commits[commit].get(file), {"X-Repo-Commit": commit}
    if data is None:
        return Response("", 404, headers | {"X-Error-Code": "EntryNotFound"})
    if not file.endswith(LFS):
        return of_file(hub, request, data, headers | {"ETag": f'"{git_oid(data)}"'})
    digest = hashlib.sha256(data).hexdigest()
    linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data))}
    return Response("", 302, headers | linked | {"Location": f"{hub.cdn}/cdn/{digest}"})


def large_file(hub: HubServer, request: Request, digest: str):
    stored = (repository.objects for repository in hub.repositories.values())
    return of_file(hub, request, next(objects[digest] for objects in stored if digest in objects), {})


def of_file(hub: HubServer, request: Request, data: bytes, headers: dict[str, str]) -> Response:
    """Return the requested bytes."""
    start = request.range.ranges[0][0] if request.range else 0
    hub.sent += len(data) - start if request.method == "GET" else 0
    if start:
        headers = headers | {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
    return Response(data[start:], 206 if start else 200, headers)


class Name(BaseConverter):
    """The name of a repository in a path."""

    regex = "[^/]+/[^/]+"


ENDPOINTS = (
    ("GET", "/api/models", list_models),
    ("GET", "/api/KIND/NAME", describe),
    ("GET", "/api/KIND/NAME/revision/<revision>", describe),
    ("GET", "/api/KIND/NAME/tree/<revision>", list_files),
    ("GET", "/NAME/resolve/<revision>/<path:file>", resolve),
    ("GET", "/KIND/NAME/resolve/<revision>/<path:file>", resolve),
    ("GET", "/cdn/<digest>", large_file),
    ("GET", "/api/whoami-v2", uploads.account),
    ("POST", "/api/repos/create", uploads.create_repository),
    ("POST", "/api/validate-yaml", uploads.validate),
    ("PUT", "/api/models/NAME/settings", uploads.set_visibility),
    ("POST", "/api/models/NAME/preupload/<branch>", uploads.preupload),
    ("POST", "/api/models/NAME/commit/<branch>", uploads.take_commit),
    ("POST", "/api/models/NAME/branch/<branch>", uploads.create_branch),
    ("POST", "/NAME.git/info/lfs/objects/batch", uploads.large_files),
    ("PUT", "/storage/NAME/<digest>", uploads.store),
)
PARTS = {"KIND": "<any(models, datasets):kind>", "NAME": "<name:name>"}
ROUTES = Map(
    [
        Rule(re.sub("KIND|NAME", lambda part: PARTS[part[0]], path), methods=[method], endpoint=endpoint)
        for method, path, endpoint in ENDPOINTS
    ],
    strict_slashes=False,
    merge_slashes=False,
    converters={"name": Name},
)


@contextlib.contextmanager
def hub_here(patch: Any, cache: Path) -> Iterator[HubServer]:
    """Yield a Hub which this process and all that it starts talk to, without a token; `patch` is a MonkeyPatch."""
    with HubServer() as server:
        for name, value in {"HF_ENDPOINT": server.url, "HF_HOME": cache, "HF_HUB_DISABLE_XET": 1}.items():
            patch.setenv(name, str(value))
        for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
            patch.delenv(name, raising=False)
        yield server
