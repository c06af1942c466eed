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
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from helpers.hub.hub_uploads import Refused, Uploads, git_oid

LFS = (".parquet", ".zst", ".gz", ".safetensors")


@dataclasses.dataclass
class Fault:
    """Describes what goes wrong for the first `times` requests `METHOD path` that match `pattern`.

    `status` answers with that code, `body` and `headers`; `cut` closes the connection after so many bytes of the body;
    `drop` closes the connection without an answer, in the middle of the request's body and before it took effect, or
    after it did; `meanwhile` is called before the request is answered as usual.
    """

    pattern: str
    times: int = 1
    status: int | None = None
    cut: int | None = None
    drop: Literal["before", "after"] | None = None
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
        self.lock = threading.Lock()
        self.faults: list[Fault] = []
        self.log: list[str] = []
        self.ranges: list[str] = []
        self.sent = 0  # bytes of files
        self.backwards = False  # whether listings are in the opposite order
        self.tokens_seen: list[tuple[str, str | None]] = []
        server = self

        class Handler(_Handler):
            hub = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.cdn = f"http://localhost:{self._http.server_address[1]}"  # another origin, as the Hub's is

    def __enter__(self):
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
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


class _Handler(Uploads):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    lfs = LFS
    answers = True

    def log_message(self, *_):
        pass

    def answer(self):
        """Find the fault that applies, if any, then the endpoint."""
        path = urllib.parse.unquote(self.path)
        line = f"{self.command} {path}"
        self.hub.log.append(line)
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
        self.hub.tokens_seen.append((line, token))
        with self.hub.lock:  # none is for more requests than it says
            fault = next((f for f in self.hub.faults if f.times > 0 and re.search(f.pattern, line)), None)
            if fault:
                fault.times -= 1
        if fault:
            if fault.drop == "before":
                self.rfile.read(int(self.headers.get("content-length") or 0) // 2)
                self.close_connection = True
                return None
            self.answers = fault.drop != "after"
            if fault.meanwhile:
                fault.meanwhile()
        body = self.read_body()
        if fault and fault.status:
            return self.send(fault.status, fault.body, fault.headers)
        if self.command in ("POST", "PUT") or path == "/api/whoami-v2":
            try:
                return self.send_json(self.upload(path, token, body))
            except Refused as refused:
                return self.send(refused.status, refused.body, refused.headers)
        if found := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
            stored = (repository.objects for repository in self.hub.repositories.values())
            return self.send_file(next(objects[found[1]] for objects in stored if found[1] in objects), {}, fault)
        path, _, query = path.partition("?")
        if path == "/api/models":
            return self.send_models(token, dict(urllib.parse.parse_qsl(query)))
        for pattern, endpoint in (
            (r"/api/(?P<kind>datasets|models)/(?P<name>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?", self.send_info),
            (r"/api/(?P<kind>datasets|models)/(?P<name>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)/?", self.send_tree),
            (
                r"/(?P<kind>datasets/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)",
                self.send_resolved,
            ),
        ):
            if found := re.fullmatch(pattern, path):
                asked = found.groupdict()
                name = f"{(asked['kind'] or 'models').strip('/')}/{asked['name']}"
                repository = self.repository(name, token, content="file" in asked)
                commit = repository and self.commit_of(repository, asked["revision"] or "main")
                if commit:
                    endpoint(asked, commit, repository.commits[commit], query, fault)
                return None
        return self.send(404, b'{"error": "no such endpoint"}')

    do_HEAD = do_GET = do_POST = do_PUT = answer

    def repository(self, name: str, token: str | None, content: bool = False) -> Repository | None:
        """Return the repository, or None after the answer that the Hub gives to who may not see it."""
        repository = self.hub.repositories.get(name)
        known = token in self.hub.tokens
        if token and not known:
            self.send(401, b'{"error": "Invalid user token."}', {"X-Error-Message": "Invalid user token."})
        elif repository is None or (repository.private and not known):
            self.send(404 if known else 401, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        elif repository.gated and content and not known:
            self.send(401, b'{"error": "gated"}', {"X-Error-Code": "GatedRepo"})
        else:
            return repository
        return None

    def commit_of(self, repository: Repository, revision: str) -> str | None:
        commit = revision if revision in repository.commits else repository.branches.get(revision)
        if commit is None:
            self.send(404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
        return commit

    def send_info(self, asked: dict, commit: str, files: dict[str, bytes], query: str, fault: Fault | None) -> None:
        siblings = [{"rfilename": file} for file in sorted(files)]
        private = self.hub.repositories[f"{asked['kind']}/{asked['name']}"].private
        self.send_json({"id": asked["name"], "sha": commit, "private": private, "siblings": siblings, "tags": []})

    def send_models(self, token: str | None, query: dict[str, str]) -> None:
        """Send the models of an owner that the token may see, 3 per page."""
        if token and token not in self.hub.tokens:
            return self.send(401, b'{"error": "Invalid user token."}', {"X-Error-Message": "Invalid user token."})
        names = [
            name.removeprefix("models/")
            for name, repository in self.hub.repositories.items()
            if name.startswith(f"models/{query['author']}/") and (token or not repository.private)
        ]
        start, headers = int(query.get("cursor", 0)), {}
        if start + 3 < len(names):
            address = f"{self.hub.url}/api/models?author={query['author']}&cursor={start + 3}"
            headers["Link"] = f'<{address}>; rel="next"'
        self.send_json([{"id": name, "_id": name, "tags": []} for name in names[start : start + 3]], headers)

    def send_tree(self, asked: dict, commit: str, files: dict[str, bytes], query: str, fault: Fault | None) -> None:
        """Send the listing with folders, 10 entries per page."""
        start = int(dict(urllib.parse.parse_qsl(query)).get("cursor", 0))
        folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents} - {"."}
        names = sorted([*files, *folders], reverse=self.hub.backwards)
        entries = []
        for name in names[start : start + 10]:
            if name in folders:
                entries.append({"type": "directory", "path": name, "size": 0, "oid": git_oid(name.encode())})
                continue
            entry = {"type": "file", "path": name, "size": len(files[name]), "oid": git_oid(files[name])}
            if name.endswith(LFS):
                digest = hashlib.sha256(files[name]).hexdigest()
                entry["lfs"] = {"oid": digest, "size": len(files[name]), "pointerSize": 130}
            entries.append(entry)
        headers = {}
        if start + 10 < len(names):
            address = f"{self.hub.url}/api/{asked['kind']}/{asked['name']}/tree/{commit}"
            headers["Link"] = f'<{address}?recursive=true&cursor={start + 10}>; rel="next"'
        self.send_json(entries, headers)

    def send_resolved(self, asked: dict, commit: str, files: dict[str, bytes], query: str, fault: Fault | None) -> None:
        name = asked["file"]
        data = files.get(name)
        headers = {"X-Repo-Commit": commit}
        if data is None:
            self.send(404, b"", headers | {"X-Error-Code": "EntryNotFound"})
        elif name.endswith(LFS):
            digest = hashlib.sha256(data).hexdigest()
            linked = {
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{self.hub.cdn}/cdn/{digest}",
            }
            self.send(302, b"", headers | linked)
        else:
            self.send_file(data, headers | {"ETag": f'"{git_oid(data)}"'}, fault)

    def send_file(self, data: bytes, headers: dict, fault: Fault | None) -> None:
        """Send the requested bytes, or what a fault makes of them."""
        status = 200
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("range") or ""):
            self.hub.ranges.append(asked[0])
            total, start = len(data), int(asked[1])
            data, status = data[start:], 206
            headers = headers | {"Content-Range": f"bytes {start}-{total - 1}/{total}"}
        if fault and fault.cut is not None:
            self.send(status, data[: fault.cut], headers | {"Content-Length": str(len(data))})
            self.close_connection = True
        else:
            self.hub.sent += len(data) if self.command == "GET" else 0
            self.send(status, data, headers)

    def send_json(self, value, headers: dict | None = None) -> None:
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"} | (headers or {}))

    def send(self, status: int, body: bytes, headers: dict | None = None) -> None:
        if not self.answers:
            self.close_connection = True
            return
        headers = {"Content-Length": str(len(body))} | (headers or {})
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def hub_here(patch: Any, cache: Path) -> Iterator[HubServer]:
    """Yield a Hub which this process and all that it starts talk to, without a token; `patch` is a MonkeyPatch."""
    with HubServer() as server:
        for name, value in {"HF_ENDPOINT": server.url, "HF_HOME": cache, "HF_HUB_DISABLE_XET": 1}.items():
            patch.setenv(name, str(value))
        for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
            patch.delenv(name, raising=False)
        yield server
