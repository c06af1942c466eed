"""Measure how long a dry run takes: `python benchmarks/dry_run.py` prints seconds for 45 and for 500 languages.

The languages are the shipped ones, whose text comes from the Hub, and further ones with local files, in an empty
folder. The first run writes the settings files. Of the next runs, the fastest one counts. The benchmark also prints the
processor's time, since the machine may be busy.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.config.languages import read_table  # noqa: E402

GOALS = {45: 3.0, 500: 10.0}  # seconds


def dry_run(folder: Path) -> tuple[float, float, int]:
    """Return the seconds and processor seconds of a dry run of the group `many`, and the number of its jobs."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run([*map(str, command), "--cores", "1", "-n", "many"], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    total = [line for line in done.stdout.splitlines() if line.startswith("total ")]
    processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return seconds, processor, int(total[-1].split()[1])


def main() -> None:
    """Print a line for each number of languages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--languages", type=int, nargs="+", default=[45, 500])
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    codes = list(read_table(ROOT / "config/languages.tsv"))
    for count in args.languages:
        more = [f"x{number:04}" for number in range(count - len(codes))]
        with tempfile.TemporaryDirectory() as folder:
            for name in ("texts", "config"):
                Path(folder, name).mkdir()
            for name in more:
                Path(folder, f"texts/{name}.txt").write_text("text\n")
            own = {name: {"name": name, "corpus": {"files": [f"texts/{name}.txt"]}} for name in more}
            values = {"languages": own, "groups": {"many": codes[:count] + more}}
            Path(folder, "config/config.yaml").write_text(yaml.safe_dump(values))
            first, *_ = dry_run(Path(folder))
            again, processor, jobs = min(dry_run(Path(folder)) for _ in range(args.repeats))
        goal = f"; the goal is {GOALS[count]:.0f} s" if count in GOALS else ""
        print(f"{count} languages, {jobs} jobs: {again:.1f} s ({processor:.1f} s of a processor){goal}", end="; ")
        print(f"the first time {first:.1f} s", flush=True)


if __name__ == "__main__":
    main()
