"""Measure what a budget downloads from a Hub on this machine: files, bytes and seconds, for a dataset of 200 files.

    python benchmarks/downloads.py FOLDER

This makes a dataset of English (the help of LibreOffice, `real_text.py`) with 200 compressed files of JSON lines. It
runs the stage `download` for 1, 10 and 100 percent of the documents: first each with an empty cache, and then one after
another with the same cache, like a budget that grows.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from real_text import fetch
from workflow_run import write_job

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from babelmill.config.resolve import Configuration
from babelmill.graph import Graph
from helpers.hub.hub_server import HubServer

FILES = 200
SHARES = (0.01, 0.1, 1.0)


def download(hub: HubServer, folder: Path, budget: int, cache: str) -> str:
    """Run the stage. Return a line of the table."""
    corpus = {"hub": "lab/help", "budget": f"{budget} documents"}
    configuration = Configuration([("config.yaml", {"languages": {"eng": {"corpus": corpus}}})])
    shutil.rmtree(folder / "results", ignore_errors=True)
    settings = write_job(folder, "download", Graph(configuration).result("download", "eng").asked)
    command = [sys.executable, "-m", "babelmill.download", settings]
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": cache,
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": sys.path[1],
    }
    sent, began = hub.sent, time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    taken = len(json.loads((folder / "results/download/out/manifest.json").read_text())["figures"]["train"])
    return f"| {budget:,} | {cache} | {taken} of {FILES} | {(hub.sent - sent) / 1e6:.2f} | {seconds:.1f} |"


def main() -> None:
    """Make the dataset, download, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    lines = fetch(folder / "texts", "en-us").read_bytes().splitlines(keepends=True)
    files = {f"data/{i:03}.jsonl.gz": gzip.compress(b"".join(lines[i::FILES]), mtime=0) for i in range(FILES)}
    print(f"{len(lines):,} documents, {sum(map(len, files.values())) / 1e6:.2f} MB in {FILES} files")
    print("| budget, documents | cache | files | MB fetched | seconds |\n|---|---|---|---|---|")
    with HubServer() as hub:
        hub.commit("datasets/lab/help", files)
        for share in SHARES:
            shutil.rmtree(folder / "empty", ignore_errors=True)
            print(download(hub, folder, round(share * len(lines)), "empty"))
        for share in SHARES:
            print(download(hub, folder, round(share * len(lines)), "kept"))


if __name__ == "__main__":
    main()
