"""Define the part of the test Hub that clients write to: accounts, repositories, large files, commits.

How files travel is a matter of the client, which is huggingface_hub's; what is checked here is what we decide: the card,
what is in a commit, and on which one it is made.
"""

import base64
import fnmatch
import hashlib
import json
import math
import re
from typing import Any, NoReturn

import yaml
from werkzeug.exceptions import abort
from werkzeug.wrappers import Request, Response

ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"  # what the Hub puts into a new repository
LFS = (".parquet", ".zst", ".gz", ".safetensors")  # kept as the Hub keeps large files
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "other", "unknown")  # some of them


def refuse(status: int, message: str, code: str = "", **more) -> NoReturn:
    """Answer with an error."""
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    abort(Response(json.dumps({"error": message} | more), status, headers))


def expect(true, message: str) -> None:
    """Refuse a request that is wrong."""
    if not true:
        refuse(400, message)


def git_oid(data: bytes) -> str:
    """Return the git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def token_of(request: Request) -> str | None:
    """Return the token that comes with a request."""
    return request.headers.get("authorization", "").removeprefix("Bearer ") or None


def signed_in(hub, request: Request) -> Any:
    """Return what somebody asks who may write."""
    if token_of(request) not in hub.tokens:
        refuse(401, "Invalid credentials in Authorization header")
    return request.get_json(silent=True)


def writable(hub, request: Request, name: str):
    """Return a model's repository that the account may write to."""
    signed_in(hub, request)
    if name.split("/")[0] not in hub.namespaces:
        refuse(403, "You are not a member of this organisation")
    if f"models/{name}" not in hub.repositories:
        refuse(404, "Repository not found", "RepoNotFound")
    return hub.repositories[f"models/{name}"]


def head_of(repository, branch: str) -> str:
    """Return the last commit of a branch."""
    if branch not in repository.branches:
        refuse(404, f"Invalid rev id: {branch}", "RevisionNotFound")
    return repository.branches[branch]


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


# The endpoints: each takes the hub, the request and the parts of its path, and returns JSON or a response.


def account(hub, request: Request):
    signed_in(hub, request)
    return {"type": "user", "name": "ada", "orgs": [{"name": "lab"}]}


def create_repository(hub, request: Request):
    asked = signed_in(hub, request)
    owner, name = asked["organization"] or "ada", asked["name"]
    url = f"{hub.url}/{owner}/{name}"
    if owner not in hub.namespaces:
        refuse(403, f"You don't have the rights to create a model under the namespace {owner}")
    if f"models/{owner}/{name}" in hub.repositories:
        refuse(409, "You already created this model repo", url=url)
    hub.commit(f"models/{owner}/{name}", {".gitattributes": ATTRIBUTES}, private=asked["visibility"] == "private")
    return {"url": url, "name": f"{owner}/{name}", "id": "0"}


def set_visibility(hub, request: Request, name: str):
    writable(hub, request, name).private = request.get_json()["visibility"] == "private"
    return {}


def validate(hub, request: Request):
    check_card(signed_in(hub, request)["content"])
    return {"errors": [], "warnings": []}


def create_branch(hub, request: Request, name: str, branch: str):
    """Create a branch that begins at main."""
    repository = writable(hub, request, name)
    if branch in repository.branches:
        refuse(409, f"Reference refs/heads/{branch} already exists")
    expect(not (request.get_json(silent=True) or {}).get("startingPoint"), "not from main")
    repository.branches[branch] = repository.branches["main"]
    return {}


def preupload(hub, request: Request, name: str, branch: str):
    repository = writable(hub, request, name)
    files = repository.commits[head_of(repository, branch)]
    ignored = files.get(".gitignore", b"").decode().split()
    answers = []
    for asked in request.get_json()["files"]:
        path, lfs = asked["path"], asked["path"].endswith(LFS)
        answer = {"path": path, "uploadMode": "lfs" if lfs else "regular"}
        answer["shouldIgnore"] = any(fnmatch.fnmatch(path, pattern) for pattern in ignored)
        if path in files:
            answer["oid"] = hashlib.sha256(files[path]).hexdigest() if lfs else git_oid(files[path])
        answers.append(answer)
    return {"files": answers}


def large_files(hub, request: Request, name: str):
    """Say where each large file goes that is not in the storage yet."""
    objects, answers = writable(hub, request, name).objects, []
    for entry in json.loads(request.get_data())["objects"]:
        address = {"upload": {"href": f"{hub.cdn}/storage/{name}/{entry['oid']}"}}
        answers.append(entry | ({} if entry["oid"] in objects else {"actions": address}))
    return {"transfer": "basic", "objects": answers}


def store(hub, request: Request, name: str, digest: str):
    data = request.get_data()
    expect(token_of(request) is None, "the storage must not see the token")
    expect(hashlib.sha256(data).hexdigest() == digest, "not the content that was announced")
    hub.repositories[f"models/{name}"].objects[digest] = data
    return {}


def take_commit(hub, request: Request, name: str, branch: str):
    """Apply the whole commit, or nothing."""
    repository = writable(hub, request, name)
    head, *operations = [json.loads(line) for line in request.get_data().splitlines()]
    expect(head["key"] == "header" and head["value"]["summary"], "a commit begins with its header")
    parent = head_of(repository, branch)
    if head["value"].get("parentCommit", parent) != parent:
        refuse(412, "A commit has happened since. Please refresh and try again.")
    expect(operations, "nothing to commit")
    files = dict(repository.commits[parent])
    changed, deleted = [], []
    for operation in operations:
        value = operation["value"]
        path = value["path"]
        expect(path not in changed + deleted and ".." not in path.split("/"), f"{path} twice, or no path")
        if operation["key"] == "deletedFile":
            expect(files.pop(path, None) is not None, f"{path} is not there")
            deleted.append(path)
            continue
        lfs = operation["key"] == "lfsFile"
        data = repository.objects.get(value["oid"]) if lfs else base64.b64decode(value["content"])
        expect(data is not None, f"{path} has not been uploaded")
        expect(files.get(path) != data, f"{path} has not changed")
        files[path] = data
        changed.append(path)
    if "README.md" in changed:
        check_card(files["README.md"].decode())
    commit = hub.commit(f"models/{name}", files, branch)
    what = {"summary": head["value"]["summary"], "changed": changed, "deleted": deleted}
    repository.history.append({"branch": branch, "commit": commit, "parent": parent} | what)
    return {"success": True, "commitOid": commit, "commitUrl": f"{hub.url}/{name}/commit/{commit}"}
