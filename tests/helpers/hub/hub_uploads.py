"""Define the part of the test Hub that clients write to: accounts, repositories, large files, commits.

It is stricter than the Hub: whatever a client gets wrong is refused, so that tests notice.
"""

import base64
import binascii
import fnmatch
import hashlib
import hmac
import json
import math
import re
from http.server import BaseHTTPRequestHandler

import yaml

ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"  # what the Hub puts into a new repository
SECRET = b"of the storage's signed addresses"

# The names of licences that the Hub accepts in a model card.
_LICENCES = (
    "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m"
    " afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0"
    " cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0"
    " cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0"
    " cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl"
    " gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr"
    " mpl-2.0 odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr"
    " deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4"
    " grok2-community gemma unknown other"
)
LICENCES = frozenset(_LICENCES.split())


def head_of(repository, branch: str) -> str:
    """Return the last commit of a branch."""
    if branch not in repository.branches:
        raise Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
    return repository.branches[branch]


class Refused(Exception):
    """Is raised to answer with an error."""

    def __init__(self, status: int, message: str, code: str | None = None, **more):
        self.status = status
        self.body = json.dumps({"error": message} | more).encode()
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


def expect(true, message: str) -> None:
    """Refuse a request that is wrong."""
    if not true:
        raise Refused(400, message)


def git_oid(data: bytes) -> str:
    """Return the git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def check_card(text: str) -> None:
    """Check the front matter of a README.md as the Hub does, whose rules its error messages tell."""
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    expect(found, "README.md has no front matter")
    values = yaml.safe_load(found[1])
    expect(isinstance(values, dict) and values.get("license") in LICENCES, '"license" must be one of [...]')
    languages = values.get("language") or []
    for language in [languages] if isinstance(languages, str) else languages:
        valid = re.fullmatch("[a-z]{2,3}|code|multilingual", language)
        expect(valid, f'"language" with value "{language}" is not valid')
    expect(isinstance(values.get("tags", []), list), '"tags" must be an array')
    for result in (result for model in values.get("model-index", []) for result in model["results"]):
        dataset = result["dataset"]
        expect(re.fullmatch(r"(?:[\w-]+/)?[\w\-.]+", dataset["type"]), '"dataset.type" fails to match the pattern')
        expect(all(isinstance(value, str) for value in dataset.values()), '"dataset.config" must be a string')
        expect(all(math.isfinite(metric["value"]) for metric in result["metrics"]), '"value" must be a number')


class Uploads(BaseHTTPRequestHandler):
    """Answers at endpoints that need a token with write permission. `hub` is the server."""

    def read_body(self) -> bytes:
        """Return what the client sent, at once or in chunks."""
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def upload(self, path: str, token: str | None, body: bytes):
        """Return the answer to a request that writes, as JSON, or raise Refused."""
        path, _, query = path.partition("?")
        if found := re.fullmatch(r"/storage/([^/]+/[^/]+)/([0-9a-f]{64})", path):
            expect(self.command == "PUT" and token is None, "the storage must not see the token")
            return self.store(*found.groups(), query, body)
        if token not in self.hub.tokens:
            raise Refused(401, "Invalid credentials in Authorization header")
        if path == "/api/whoami-v2":
            return {"type": "user", "name": "ada", "orgs": [{"name": "lab"}]}
        for method, pattern, endpoint in (
            ("POST", r"/api/repos/create", self.create),
            ("POST", r"/api/validate-yaml", self.validate),
            ("PUT", r"/api/(models/[^/]+/[^/]+)/settings", self.set_visibility),
            ("POST", r"/api/(models/[^/]+/[^/]+)/preupload/([^/]+)", self.preupload),
            ("POST", r"/api/(models/[^/]+/[^/]+)/commit/([^/]+)", self.take_commit),
            ("POST", r"/api/(models/[^/]+/[^/]+)/branch/([^/]+)", self.create_branch),
            ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/(batch|verify)", self.large_files),
        ):
            if self.command == method and (found := re.fullmatch(pattern, path)):
                with self.hub.lock:
                    return endpoint(body, *found.groups())
        raise Refused(404, "no such endpoint")

    def writable(self, name: str):
        """Return a repository that the account may write to."""
        if name.split("/")[1] not in self.hub.namespaces:
            raise Refused(403, "You are not a member of this organisation")
        if name not in self.hub.repositories:
            raise Refused(404, "Repository not found", "RepoNotFound")
        return self.hub.repositories[name]

    def create(self, body: bytes):
        asked = json.loads(body)
        owner, name = asked["organization"] or "ada", asked["name"]
        expect(asked.get("type", "model") == "model" and asked["visibility"] in ("public", "private"), "not a model")
        url = f"{self.hub.url}/{owner}/{name}"
        if owner not in self.hub.namespaces:
            raise Refused(403, f"You don't have the rights to create a model under the namespace {owner}")
        if f"models/{owner}/{name}" in self.hub.repositories:
            raise Refused(409, "You already created this model repo", url=url)
        self.hub.commit(
            f"models/{owner}/{name}", {".gitattributes": ATTRIBUTES}, private=asked["visibility"] == "private"
        )
        return {"url": url, "name": f"{owner}/{name}", "id": "0"}

    def set_visibility(self, body: bytes, name: str):
        asked = json.loads(body)
        expect(set(asked) == {"visibility"} and asked["visibility"] in ("public", "private"), "unknown settings")
        self.writable(name).private = asked["visibility"] == "private"
        return {}

    def validate(self, body: bytes):
        check_card(json.loads(body)["content"])
        return {"errors": [], "warnings": []}

    def create_branch(self, body: bytes, name: str, branch: str):
        """Create a branch that begins at main."""
        repository = self.writable(name)
        asked = json.loads(body)
        expect(set(asked) <= {"startingPoint", "overwrite"} and not asked.get("startingPoint"), "not from main")
        if branch in repository.branches:
            raise Refused(409, f"Reference refs/heads/{branch} already exists")
        repository.branches[branch] = repository.branches["main"]
        return {}

    def preupload(self, body: bytes, name: str, branch: str):
        repository = self.writable(name)
        files = repository.commits[head_of(repository, branch)]
        ignored = files.get(".gitignore", b"").decode().split()
        answers = []
        for asked in json.loads(body)["files"]:
            path, sample = asked["path"], base64.b64decode(asked["sample"], validate=True)
            expect(len(sample) == min(asked["size"], 512), "the sample is not the beginning of the file")
            answer = {"path": path, "uploadMode": "lfs" if path.endswith(self.lfs) else "regular"}
            answer["shouldIgnore"] = any(fnmatch.fnmatch(path, pattern) for pattern in ignored)
            if path in files:
                lfs = path.endswith(self.lfs)
                answer["oid"] = hashlib.sha256(files[path]).hexdigest() if lfs else git_oid(files[path])
            answers.append(answer)
        return {"files": answers}

    def large_files(self, body: bytes, name: str, action: str):
        asked, objects = json.loads(body), self.writable(f"models/{name}").objects
        if action == "verify":
            data = objects.get(asked["oid"])
            expect(data is not None and len(data) == asked["size"], "this object is not here")
            return {}
        expect(asked["operation"] == "upload" and asked["hash_algo"] == "sha256", "not an upload")
        answers = []
        for entry in asked["objects"]:
            answer = {"oid": entry["oid"], "size": entry["size"]}
            if entry["oid"] not in objects:
                address = f"/storage/{name}/{entry['oid']}?size={entry['size']}"
                answer["actions"] = {
                    "upload": {"href": f"{self.hub.cdn}{address}&signature={sign(address)}"},
                    "verify": {"href": f"{self.hub.url}/{name}.git/info/lfs/objects/verify"},
                }
            answers.append(answer)
        return {"transfer": "basic", "objects": answers}

    def store(self, name: str, digest: str, query: str, data: bytes):
        size, _, signature = query.partition("&signature=")
        expect(signature == sign(f"/storage/{name}/{digest}?{size}"), "the address is not signed by the Hub")
        expect(size == f"size={len(data)}", "not as many bytes as announced")
        expect(hashlib.sha256(data).hexdigest() == digest, "not the content that was announced")
        with self.hub.lock:
            self.hub.repositories[f"models/{name}"].objects[digest] = data
        return {}

    def take_commit(self, body: bytes, name: str, branch: str):
        """Apply the whole commit, or nothing."""
        repository = self.writable(name)
        head, *operations = [json.loads(line) for line in body.splitlines()]
        expect(head["key"] == "header" and head["value"]["summary"], "a commit begins with its header")
        parent = head_of(repository, branch)
        if head["value"].get("parentCommit", parent) != parent:
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        expect(operations, "nothing to commit")
        files = dict(repository.commits[parent])
        changed, deleted = [], []
        for operation in operations:
            value = operation["value"]
            path = value["path"]
            expect(path not in changed + deleted and ".." not in path, f"{path} twice, or no path")
            if operation["key"] == "deletedFile":
                if path not in files:
                    raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
                del files[path]
                deleted.append(path)
                continue
            lfs = operation["key"] == "lfsFile"
            expect(lfs == path.endswith(self.lfs), f"{path} is not uploaded as preupload said")
            if lfs:
                data = repository.objects.get(value["oid"])
                expect(value["algo"] == "sha256" and data is not None, f"{path} has not been uploaded")
                expect(len(data) == value["size"], f"{path} has another size")
            else:
                expect(operation["key"] == "file" and value["encoding"] == "base64", "unknown operation")
                try:
                    data = base64.b64decode(value["content"], validate=True)
                except binascii.Error:
                    raise Refused(400, f"{path} is not base64") from None
            expect(files.get(path) != data, f"{path} has not changed")
            files[path] = data
            changed.append(path)
        if "README.md" in changed:
            check_card(files["README.md"].decode())
        commit = self.hub.commit(name, files, branch)
        summary = head["value"]["summary"]
        what = {"summary": summary, "changed": changed, "deleted": deleted}
        repository.history.append({"branch": branch, "commit": commit, "parent": parent} | what)
        return {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.url}/{name}/commit/{commit}"}


def sign(address: str) -> str:
    """Sign an address, since only the Hub can make one that its storage accepts."""
    return hmac.new(SECRET, address.encode(), "sha256").hexdigest()
