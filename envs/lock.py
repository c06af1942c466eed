"""Write the lock files: every package with its version, and the hashes of all its files (`make lock`).

uv finds the versions for all Pythons and systems at once, and keeps those that the files have now, as far
as pyproject.toml allows. With the argument `--upgrade`, it takes the newest.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
# PyTorch's packages depend on the machine, so they are in a file of their own.
OF_TORCH = re.compile(r"(torch|triton|nvidia-(?!ml-py)|cuda-)")
CONTENT = {
    "lock.txt": "What Babelmill needs, besides PyTorch",
    "lock-tools.txt": "What tests, lint and documentation need besides lock.txt",
    "lock-torch.txt": "PyTorch, and after it what its CUDA builds need",
    "lock-release.txt": "What `make lock`, `make sbom` and `make audit` need",
}


def packages(text: str) -> dict[str, str]:
    """Return {name: its lines} of a lock file. A package that has a version for some Pythons has several lines."""
    found: dict[str, str] = {}
    for lines in re.findall(r"^\w.*\n(?: .*\n)*", text, re.MULTILINE):
        name = lines.partition("==")[0]
        found[name] = found.get(name, "") + lines
    return found


def resolve(requirements: list[str], known: str, *options: str) -> dict[str, str]:
    """Return the packages that some requirements need, with uv. Prefer the versions of the text `known`."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, file = Path(folder, "wanted.in"), Path(folder, "lock.txt")
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        file.write_text(known, encoding="utf-8")
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--python-version", "3.11"]
        command += ["--no-header", "--no-annotate", "--output-file", str(file), *options, str(wanted)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return packages(file.read_text(encoding="utf-8"))


def hashes_of_cpu_builds(version: str) -> str:
    """Return the hashes in `torch-cpu.sha256`, as lines that follow those of PyPI's builds."""
    lines = (HERE / "torch-cpu.sha256").read_text(encoding="utf-8").splitlines()
    digests = dict(reversed(line.split()) for line in lines if not line.startswith("#"))
    if any(not name.startswith(f"torch-{version}+cpu-") for name in digests):
        sys.exit(f"error: envs/torch-cpu.sha256 has not the files of torch {version}: write their lines there")
    return "".join(f" \\\n    --hash=sha256:{digest}" for digest in digests.values())


def main() -> None:
    """Write all files."""
    text = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = text["project"], text["project"]["optional-dependencies"]
    to_run = [
        *project["dependencies"],
        *text["build-system"]["requires"],
        *extras["slurm"],
        *extras["cluster"],
        *extras["s3"],
    ]
    known = "".join(path.read_text(encoding="utf-8") for name in CONTENT if (path := HERE / name).is_file())
    known = re.sub(r" \\\n +--hash=\S+", "", known)  # uv would keep hashes
    all_found = resolve([*to_run, *extras["test"], *extras["docs"]], known, *sys.argv[1:])
    torch = {name: lines for name, lines in all_found.items() if OF_TORCH.match(name)}
    run = resolve(to_run, "".join(all_found.values())).keys() - torch.keys()
    (version,) = (pin.removeprefix("torch==") for pin in project["dependencies"] if pin.startswith("torch=="))
    first = torch.pop("torch").rstrip() + hashes_of_cpu_builds(version) + "\n"
    found = {
        "lock.txt": {name: lines for name, lines in all_found.items() if name in run},
        "lock-tools.txt": {
            name: lines for name, lines in all_found.items() if name not in run | torch.keys() | {"torch"}
        },
        "lock-torch.txt": {"torch": first} | torch,
        "lock-release.txt": resolve(extras["release"], known, *sys.argv[1:]),
    }
    for name, content in CONTENT.items():
        header = f"# {content}, with the hashes of all files. Made by `make lock`; do not edit.\n"
        (HERE / name).write_text(header + "".join(found[name].values()), encoding="utf-8")


if __name__ == "__main__":
    main()
