"""Compare the speed of the stage `score` on prompts with several options with that of an independent plain loop.

    python benchmarks/choices.py [--folder converted/eng] [--items 50] [--threads 1]

The model is a GPT-BERT of the preset `small` with random weights, or one of yours. The items are made like those of
entity tracking: a long prompt about boxes, and five short options. The loop reads each option with its prompt, 64 of
them at a time, as pipelines of challenges do; ours reads a prompt once for all of its options. Both compute in fp32 in
this process, one after the other, and their scores must agree within 1e-3 of ln p. The command prints seconds of CPU
time, and the ratio.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "benchmarks")]
THINGS = ["apple", "ball", "bell", "bone", "book", "boot", "card", "clock", "coat", "cup", "dress", "fan", "hat", "key"]
BATCH = 64  # options per batch of the loop


def items(count: int) -> tuple[list[str], list[list[str]]]:
    """Return prompts, and five options for each."""
    values = random.Random(0)
    prompts, options = [], []
    for _ in range(count):
        boxes = [values.sample(THINGS, values.randint(1, 3)) for _ in range(7)]
        content = [" and ".join(f"the {thing}" for thing in box) for box in boxes]
        moves = [f"Move {content[i]} from Box {i} to Box {6 - i}." for i in values.sample(range(7), 4)]
        said = ", ".join(f"Box {i} contains {each}" for i, each in enumerate(content))
        prompts.append(f"{said}. {' '.join(moves)} Box {values.randrange(7)} contains ")
        options.append([f"{each}." for each in values.sample(content, 5)])
    return prompts, options


def by_loop(folder: Path, prompts: list[str], options: list[list[str]]) -> tuple[float, list[list[float]]]:
    """Return seconds of CPU time, and the scores of all options."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
    flat = [(prompt, option) for prompt, each in zip(prompts, options, strict=True) for option in each]
    begin, found = time.process_time(), []
    with torch.inference_mode():
        for start in range(0, len(flat), BATCH):
            part = flat[start : start + BATCH]
            texts = [prompt + option for prompt, option in part]
            given = tokenizer(
                texts, padding=True, return_tensors="pt", return_offsets_mapping=True, padding_side="right"
            )
            ends = given.pop("offset_mapping")[..., 1]
            scored = ends > torch.tensor([len(prompt) for prompt, _ in part])[:, None]
            scores = model(**given).logits[:, :-1].log_softmax(-1)
            scores = scores.gather(2, given["input_ids"][:, 1:, None])[..., 0]
            found += (scores * scored[:, 1:]).sum(1).tolist()
    return time.process_time() - begin, [found[i : i + 5] for i in range(0, len(found), 5)]


def ours(folder: Path, prompts: list[str], options: list[list[str]]) -> tuple[float, list[list[float]]]:
    """Return the same, as the stage `score` computes it."""
    import numpy as np

    from babelmill.suites.scoring_model import ScoringModel

    model = ScoringModel(folder, {})
    loaded = model.load(model.method("causal"))
    model.load = lambda _how: loaded  # the loop's model is loaded before the clock starts, too
    texts = [[prompt + option for option in each] for prompt, each in zip(prompts, options, strict=True)]
    lengths = [[len(prompt)] * len(each) for prompt, each in zip(prompts, options, strict=True)]
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.process_time()
        found = model.score("causal", texts, np.ones(len(texts), bool), Path(scratch), lengths)
        return time.process_time() - begin, found[:, :5].tolist()


def main() -> None:
    """Score the items with both, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="the Hugging Face folder of a model (default: a random one)")
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    import torch
    from suites import make_folder

    torch.set_num_threads(args.threads)
    prompts, options = items(args.items)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or make_folder(Path(scratch))
        seconds, expected = by_loop(folder, prompts, options)
        mine, found = ours(folder, prompts, options)
    worst = max(abs(a - b) for pair in zip(expected, found, strict=True) for a, b in zip(*pair, strict=True))
    assert worst < 1e-3, f"the scores differ by up to {worst:g}"
    print(f"{args.items} items, CPU time: loop {seconds:.1f} s, ours {mine:.1f} s; {seconds / mine:.1f} times as fast")


if __name__ == "__main__":
    main()
