"""Compare the speed of the stage `score` with lm-evaluation-harness (causal) and minicons (masked).

    python benchmarks/suites.py [--folder converted/eng] [--pairs 200] [--threads 1]

The model is a GPT-BERT of the preset `small` with random weights, or one of yours. The pairs are sentences of Python's
documentation, and the same sentences with two words swapped. All programs score the same pairs with the same model in
fp32, each in its own process, which loads before the clock starts. The harness scores one sentence at a time, which is
its default, and batches of 64; minicons scores one and ten sentences at a time. (Its masked scorer needs transformers
4.) All numbers must agree within 1e-4 of ln p. The speed is in pairs per second of CPU time.
"""

import argparse
import dataclasses
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]
RIVALS = {"causal": ("harness", (1, 64)), "masked": ("minicons", (1, 10))}  # rival, and its batch sizes


Measured = tuple[float, list[float]]  # seconds, and scores


def pairs(count: int) -> list[tuple[str, str]]:
    """Return pairs from Python's documentation."""
    from babelmill.corpus.builtin import python_docs

    return swapped([text for batch in python_docs() for text in batch["text"].to_pylist()], count)


def swapped(texts: list[str], count: int) -> list[tuple[str, str]]:
    """Return sentences of 5 to 25 words, and the same with two neighbouring words swapped."""
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
    from babelmill.release.folder.hub_folder import ExportInputs, build
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


def ours(folder: Path, method: str, texts: list[tuple[str, str]], scratch: Path, _size: int) -> Measured:
    """Return the seconds, and the scores of all sentences."""
    import numpy as np

    from babelmill.suites.scoring_model import ScoringModel

    model = ScoringModel(folder, {})
    loaded = model.load(method)
    model.load = lambda _method: loaded  # the others load before the clock starts, too
    begin = time.process_time()
    found = model.score(method, texts, np.ones(len(texts), bool), scratch / "partial")
    return time.process_time() - begin, found[:, :2].flatten().tolist()


def harness(folder: Path, _method: str, texts: list[tuple[str, str]], _scratch: Path, size: int) -> Measured:
    """Do the same with lm-evaluation-harness, as for a task of pairs with `target_delimiter: ""`."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    sentences = [text for pair in texts for text in pair]
    asked = [Instance("loglikelihood", {}, ("", text), i) for i, text in enumerate(sentences)]
    model = HFLM(str(folder), device="cpu", dtype="float32", batch_size=size, trust_remote_code=True)
    begin = time.process_time()
    scores = [score for score, _ in model.loglikelihood(asked, disable_tqdm=True)]
    return time.process_time() - begin, scores


def minicons(folder: Path, _method: str, texts: list[tuple[str, str]], _scratch: Path, size: int) -> Measured:
    """Do the same with minicons."""
    from minicons import scorer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model = scorer.MaskedLMScorer(str(folder), "cpu", tokenizer=tokenizer, trust_remote_code=True)
    sentences = [text for pair in texts for text in pair]
    options = {"reduction": lambda scores: scores.sum(0).item(), "PLL_metric": "original"}
    begin = time.process_time()
    parts = [model.sequence_score(sentences[i : i + size], **options) for i in range(0, len(sentences), size)]
    return time.process_time() - begin, [score for part in parts for score in part]


WAYS = {"ours": ours, "harness": harness, "minicons": minicons}


def measured(way: str, given: dict, packages: list[Path], threads: int) -> Measured:
    """Measure in a separate process, which imports these packages before those of the environment."""
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
    """Measure what `measured` asks for, and print the result."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    given = json.loads(asked.read_text(encoding="utf-8"))
    texts = [(good, bad) for good, bad in given["pairs"]]
    print(json.dumps(WAYS[way](Path(given["folder"]), given["method"], texts, asked.parent, given["size"])))


def lines(method: str, folder: Path, texts: list[tuple[str, str]], args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of a method."""
    from helpers.environments import SUITES, TRANSFORMERS_4, installed

    given = {"folder": str(folder), "method": method, "pairs": texts, "size": 0}
    rival, sizes = RIVALS[method]
    packages = [installed(SUITES)] if method == "causal" else [installed(TRANSFORMERS_4), installed(SUITES)]
    for size in sizes:
        ratios, worst, mine = [], 0.0, (1.0, [0.0])
        for _ in range(args.rounds):
            mine = measured("ours", given, [], args.threads)
            theirs = measured(rival, given | {"size": size}, packages, args.threads)
            worst = max(worst, *(abs(a - b) for a, b in zip(mine[1], theirs[1], strict=True)))
            assert worst < 1e-4, f"{method}: the scores differ by up to {worst:g}"
            ratios.append(theirs[0] / mine[0])
        ratio, speed = statistics.median(ratios), len(texts) / mine[0]
        span = f"{min(ratios):.1f}-{max(ratios):.1f}"
        yield f"| {method} | {rival}, {size} at once | {speed:,.1f} | {ratio:.1f} | {span} | {worst:.0e} |"


def main() -> None:
    """Measure both methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="exported or converted folder (default: random weights)")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        return work(args.work[0], Path(args.work[1]))
    texts = pairs(args.pairs)
    print("| method | beside | pairs/s of CPU | times as fast | its range | largest difference |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or make_folder(Path(scratch, "made"))
        for method in args.methods:
            for line in lines(method, folder, texts, args):
                print(line, flush=True)


if __name__ == "__main__":
    main()
