"""Pairs per second of the stage `score` beside lm-evaluation-harness (causal) and minicons (masked).

    python benchmarks/suites.py [--folder converted/eng] [--pairs 400] [--threads 2]

The model is a GPT-BERT of the preset `small` with random weights, or one of yours; the pairs are sentences of Python's
documentation, and the same with two words swapped. All three score the same pairs with the same model in fp32, each in
a process of its own, which loads before the clock runs; the harness in batches of 1 and of 64 rows, minicons of 1 and
of 10 sentences, and the faster one counts. (Its masked scorer needs transformers 4.) All numbers must agree within
1e-4 of ln p, relative where that is more.
"""

import argparse
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]
TIMES = {"causal": 2, "masked": 5}  # as fast, at least


def pairs(count: int) -> list[tuple[str, str]]:
    """Return sentences of 5 to 25 words, and the same with two neighbouring words swapped."""
    from babelmill.corpus.builtin import python_docs

    texts = [text for batch in python_docs() for text in batch["text"].to_pylist()]
    found: dict[str, str] = {}
    values = random.Random(0)
    for text in texts:
        for sentence in re.findall(r"[A-Z][a-z]+ [A-Za-z ,'-]+\.", " ".join(text.split())):
            words = sentence.split()
            place = values.randrange(1, max(2, len(words) - 2))
            if 5 <= len(words) <= 25 and words[place] != words[place + 1]:
                found[sentence] = " ".join([*words[:place], words[place + 1], words[place], *words[place + 2 :]])
    return values.sample(sorted(found.items()), min(count, len(found)))


def make_folder(folder: Path) -> Path:
    """Write the Hugging Face folder of an untrained GPT-BERT, with a tokenizer of the documentation."""
    import torch
    from safetensors.torch import save_file

    from babelmill.config.resolve import Configuration
    from babelmill.core.files import write_json
    from babelmill.corpus.builtin import python_docs
    from babelmill.model.gpt_bert import GPTBert, GPTBertShape
    from babelmill.release.architecture import ExportInputs
    from babelmill.release.hub_folder import build
    from babelmill.tokenizer import train

    torch.manual_seed(0)
    settings = Configuration([("benchmark", {"preset": "small"})]).model("eng")
    texts = (batch["text"].to_pylist() for batch in python_docs())
    tokenizer = train(texts, settings.tokenizer.vocab_size, 2)
    shape = GPTBertShape(vocab_size=tokenizer.get_vocab_size(), **settings.model.shape())
    for name in ("model", "tokenizer", "export"):
        (folder / name).mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer/tokenizer.json"))
    save_file(GPTBert(shape).state_dict(), folder / "model/model.safetensors")
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "mask_token_id": 4}
    write_json(folder / "model/config.json", dataclasses.asdict(shape) | ids)
    export = settings.export.model_copy(update={"variants": ["main"], "default_variant": "main"})
    build(folder / "export", ExportInputs(folder / "model", folder / "tokenizer", []), export)
    return folder / "export"


def ours(folder: Path, method: str, texts: list[tuple[str, str]], scratch: Path) -> tuple[float, list[float]]:
    """Return the seconds, and the scores of all sentences."""
    import numpy as np
    import pyarrow as pa

    from babelmill.score import Model
    from babelmill.suites.partial import Partial

    table = pa.table({"good": [good for good, _ in texts], "bad": [bad for _, bad in texts]})
    model = Model(folder, within_word_l2r=False)
    model.score(method, table.slice(0, 2), np.ones(2, bool), Partial(scratch / "warm", {}))
    begin = time.perf_counter()
    found = model.score(method, table, np.ones(len(texts), bool), Partial(scratch / "partial", {}))
    return time.perf_counter() - begin, found[:, :2].flatten().tolist()


def harness(folder: Path, _method: str, texts: list[tuple[str, str]], _scratch: Path) -> tuple[float, list[float]]:
    """The same by lm-evaluation-harness, as a task of pairs with `target_delimiter: ""` asks it."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    sentences = [text for pair in texts for text in pair]
    asked = [Instance("loglikelihood", {}, ("", text), i) for i, text in enumerate(sentences)]
    seconds, scores = float("inf"), []
    for size in (1, 64):
        model = HFLM(
            str(folder), device="cpu", dtype="float32", batch_size=size, trust_remote_code=True, add_bos_token=False
        )
        model.loglikelihood(asked[:4], disable_tqdm=True)
        begin = time.perf_counter()
        scores = [score for score, _ in model.loglikelihood(asked, disable_tqdm=True)]
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds, scores


def minicons(folder: Path, _method: str, texts: list[tuple[str, str]], _scratch: Path) -> tuple[float, list[float]]:
    """The same by minicons."""
    from minicons import scorer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model = scorer.MaskedLMScorer(str(folder), "cpu", tokenizer=tokenizer, trust_remote_code=True)
    sentences = [text for pair in texts for text in pair]

    def score(batch: list[str]) -> list[float]:
        return model.sequence_score(batch, reduction=lambda scores: scores.sum(0).item(), PLL_metric="original")

    seconds, scores = float("inf"), []
    for size in (1, 10):
        score(sentences[:2])
        begin = time.perf_counter()
        scores = [found for i in range(0, len(sentences), size) for found in score(sentences[i : i + size])]
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds, scores


WAYS = {"ours": ours, "harness": harness, "minicons": minicons}


def measured(way: str, given: dict, packages: list[Path], threads: int) -> tuple[float, list[float]]:
    """Measure in a process of its own, which imports these packages before the environment's."""
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch, "asked.json")
        asked.write_text(json.dumps(given), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, packages)), "HF_HUB_OFFLINE": "1"}
        environment |= {"OMP_NUM_THREADS": str(threads), "HF_HOME": f"{scratch}/cache"}
        command = [sys.executable, __file__, "--work", way, str(asked)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        seconds, scores = json.loads(done.stdout.splitlines()[-1])
        return seconds, scores


def work(way: str, asked: Path) -> None:
    """Do what `measured` asks for, and print it."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    given = json.loads(asked.read_text(encoding="utf-8"))
    texts = [(good, bad) for good, bad in given["pairs"]]
    print(json.dumps(WAYS[way](Path(given["folder"]), given["method"], texts, asked.parent)))


def line(method: str, folder: Path, texts: list[tuple[str, str]], args: argparse.Namespace) -> str:
    """Return the line of a method."""
    from environments import SUITES, TRANSFORMERS_4, installed

    given = {"folder": str(folder), "method": method, "pairs": texts}
    rival = {"causal": "harness", "masked": "minicons"}[method]
    packages = [installed(SUITES)] if method == "causal" else [installed(TRANSFORMERS_4), installed(SUITES)]
    rounds = []
    for _ in range(args.rounds):
        mine, theirs = measured("ours", given, [], args.threads), measured(rival, given, packages, args.threads)
        worst = max(abs(a - b) / max(1.0, abs(b) / 100) for a, b in zip(mine[1], theirs[1], strict=True))
        assert worst < 1e-4, f"{method}: the scores differ by up to {worst:g}"
        rounds.append((theirs[0] / mine[0], len(texts) / mine[0], len(texts) / theirs[0], worst))
    ratio, speed, other, worst = sorted(rounds)[len(rounds) // 2]
    others = ", ".join(f"{each[0]:.1f}" for each in sorted(rounds))
    return f"| {method} | {speed:,.1f} | {other:,.1f} ({rival}) | {ratio:.1f} ({others}) | {worst:.0e} |"


def main() -> None:
    """Measure both methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="exported or converted (default: random weights)")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--methods", nargs="+", default=list(TIMES), choices=TIMES)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        return work(args.work[0], Path(args.work[1]))
    texts = pairs(args.pairs)
    print("| method | pairs/s | theirs | times as fast, by round | largest difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or make_folder(Path(scratch, "made"))
        for method in args.methods:
            print(line(method, folder, texts, args), flush=True)


if __name__ == "__main__":
    main()
