"""`envs/Dockerfile` and `envs/babelmill.def` make the same image, of all that the package is built from."""

import re
import shlex

from babelmill.config.resolve import ROOT

DOCKERFILE = (ROOT / "envs/Dockerfile").read_text(encoding="utf-8")
DEFINITION = (ROOT / "envs/babelmill.def").read_text(encoding="utf-8")


def section(name: str) -> list[str]:
    """The lines of the first section of the definition file that has this name."""
    (_, found) = DEFINITION.split(f"\n%{name}\n", 1)
    return [line.strip() for line in found.split("\n\n")[0].splitlines()]


def test_both_take_the_same_arguments_and_install_by_the_same_commands_from_the_lock():
    arguments = dict(line.split("=") for line in section("arguments"))
    assert arguments.pop("BOOTSTRAP") == "docker"
    assert arguments == dict(re.findall(r"^ARG (\w+)=(.*)", DOCKERFILE, re.MULTILINE))
    of_docker = re.findall(r"^RUN (?:python3 .* && )?(?:\S+=\S+ )?(sh .*)", DOCKERFILE, re.MULTILINE)
    of_apptainer = [re.sub(r"^\S+=\{\{ \w+ \}\} ", "", line) for line in section("post") if " envs/" in line]
    assert of_docker == of_apptainer
    assert [command.split()[1] for command in of_docker] == ["envs/install.sh", "envs/finish.sh"]
    assert "lock.txt" in of_docker[0]


def test_both_have_the_files_of_the_package():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    for_docker = {line[1:] for line in ignored.splitlines() if line.startswith("!")}
    for_apptainer = [shlex.split(line) for line in section("files")]
    assert all(target == f"/source/{source}" for source, target in for_apptainer)
    assert for_docker == {source for source, _ in for_apptainer}
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    needed = {name.split("/")[0] for line in manifest.splitlines() if line[:5] != "globa" for name in line.split()[1:]}
    assert needed <= for_docker
