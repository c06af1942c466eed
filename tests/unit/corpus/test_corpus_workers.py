"""The stage `corpus` with several processes: the same bytes, the same errors, and an end that leaves nothing."""

import functools
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_corpus import asked, build

from babelmill.core.files import UserError
from helpers.tables import table_bytes

pytestmark = pytest.mark.slow


@functools.cache
def texts() -> list[str]:
    """Nine thousand texts."""
    choose, words = random.Random(1), [f"word{i}" for i in range(500)]
    return [" ".join(choose.choices(words, k=choose.randint(1, 60))) for _ in range(9000)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Files have many blocks, and any text is worth the workers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("babelmill.corpus.__main__.WORTH_IT", 0)
    monkeypatch.setattr("babelmill.tables.text.BLOCK", 1 << 16)
    return tmp_path


def lines(texts: list[str]) -> bytes:
    return table_bytes([{"text": text, "prompt": text[:9], "category": text[:5]} for text in texts], ".jsonl")


@pytest.fixture
def every_format(folder):
    """A file of each format, with damage, and copies of the same documents far apart from each other."""
    Path("texts").mkdir()
    for i, text in enumerate(texts()[:300]):
        Path("texts", f"{i:03}.txt").write_text(text + "\r\nend")
    Path("texts/bad.txt").write_bytes(b"\xff")
    Path("a.jsonl").write_bytes(
        b"not JSON\n" * 3 + lines(texts()) + b'{"text": "\xff"}\n{"other": 1}\n' + lines(texts()[:99])
    )
    Path("b.json.gz").write_bytes(gzip.compress(lines(texts()[::-1]), 1, mtime=0)[:-9])
    Path("c.jsonl.zst").write_bytes(pa.Codec("zstd").compress(lines(texts()), asbytes=True))
    Path("d.txt").write_text("\n".join(texts()))
    Path("e.csv").write_text("text,prompt\n" + "".join(f'"{text}\n\u0001",p\n' for text in texts()) + "one,two,three\n")
    table = pa.table({"text": [*(text.encode() for text in texts()), b"\xff"], "prompt": ["p"] * 9001})
    pq.write_table(table, "f.parquet", row_group_size=700)
    pq.write_table(table.slice(5), "g.parquet")
    raw = bytearray(Path("f.parquet").read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 4000] = bytes(4000)
    Path("h.parquet").write_bytes(raw)


CASES = {
    "all": {"files": ["texts/*.txt", "[a-h].*"], "document": "line", "control_characters": "remove"},
    "budget": {
        "files": ["[a-h].*"],
        "document": "line",
        "budget": "2000 documents",
        "validation_files": ["texts/*.txt"],
    },
    "labels": {"files": ["[a-c,e-g].*"], "label_columns": ["prompt"], "validation_share": 0.1},
    "near copies": {
        "files": ["[bf].*", "texts/*.txt"],
        "document": "line",
        "near_duplicates": 0.8,
        "budget": "3000 documents",
        "language_filter": {"model": "py3langid", "at_least": 0.01},
    },
    "prompts": {"files": ["[!d].*"], "prompt_column": "prompt", "normalization": "NFC", "min_characters": 9},
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_do_not_depend_on_the_number_of_processes(every_format, caplog, case):
    found = []
    for threads in (1, 2, 5):
        caplog.clear()
        figures = build(f"out{threads}", threads, on_error="skip", **CASES[case])
        files = [Path(f"out{threads}", name).read_bytes() for name in ("train.parquet", "validation.parquet")]
        manifest = json.loads(Path(f"out{threads}/manifest.json").read_text())
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        found.append((files, manifest, warnings))
        assert figures["documents"]["train"]
        assert figures["read"] == sum(figures["documents"].values()) + sum(figures["dropped"].values())
    assert found[0] == found[1] == found[2]
    assert "b.json.gz" in figures["damaged_files"]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_fault_is_named_whoever_meets_it(folder, threads):
    Path("a.jsonl").write_bytes(lines(texts()))
    Path("b.jsonl").write_bytes(lines(texts()) + b"{broken\n")
    Path("c.jsonl.gz").write_bytes(gzip.compress(lines(texts()), 1)[:-99])
    with pytest.raises(UserError, match=r"^b\.jsonl: line 9001: not JSON"):
        build("out", threads, files=["[abc].*"])
    assert not any(path.is_file() for path in Path("out").rglob("*"))


@pytest.mark.parametrize("victim", ["worker", "SIGTERM", "SIGKILL", "SIGINT"])
def test_a_killed_process_ends_all(folder, victim):
    Path("0.jsonl").write_bytes(lines(texts()) * 2)
    for i in range(1, 60):
        os.link("0.jsonl", f"{i}.jsonl")
    command = [sys.executable, "-m", "babelmill.corpus", asked(files=["*.jsonl"]).settings_file]
    process = subprocess.Popen(
        [*command, "--threads", "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    stage = psutil.Process(process.pid)
    while len(others := stage.children(recursive=True)) < 4:  # two workers, their server, and what tracks resources
        assert process.poll() is None
        time.sleep(0.01)
    server = next(other for other in others if other.children())
    if victim == "worker":
        server.children()[0].kill()
    elif victim == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches all
    else:
        process.send_signal(getattr(signal, victim))
    _, messages = process.communicate(timeout=300)
    assert not psutil.wait_procs(others, timeout=60)[1]
    assert process.returncode != 0
    assert ("a worker process was killed" in messages) == (victim == "worker")
    assert "Traceback" not in messages
