"""Check our training on a GPU in ten minutes: whether it is right, whether it waits for the host, and how fast it is.

    python benchmarks/gpu.py [--out FOLDER] [--minutes 10] [--published CLONE]
    python benchmarks/gpu.py --section "speed base 128 16384 attention"   (one of `gpu_sections.py` alone)
    python benchmarks/gpu.py --cpu                                        (a rehearsal of this script without a GPU)

Each section is a separate process with a time limit. The most important section runs first. Each result is one JSON
line of FOLDER/gpu.jsonl, so if the machine is lost in the middle, the results so far are there. The benchmark uses data
and stored numbers of the tests, so it needs a clone with the environment of the tests. With a clone of the published
implementation (ltgoslo/gpt-bert, 9fc1507), a step of it is measured, too.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpu_sections

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {  # the most seconds of each section; they run in this order
    "environment": 40,
    "exact": 110,
    "dropped": 200,
    "waits": 40,
    "two_processes": 70,
    "speed base 128 16384": 90,
    "published base 128 16384": 40,
    "speed base 128 131072": 60,
    "parts": 60,
    "speed small 128 16384": 60,
    "speed base 512 16384": 60,
    "speed base 128 16384 unmixed": 60,
    "speed small 128 16384 unmixed": 60,
    "speed small 128 16384 muon": 60,
    "speed small 128 16384 adamw": 60,
    "speed small 128 16384 norbert4": 60,
}


def run_sections(args) -> int:
    """Run all sections. Return how many failed."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    results, end, failed = out / "gpu.jsonl", time.monotonic() + 60 * args.minutes, 0
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(out.resolve() / "compiled"))
    for section, limit in SECTIONS.items():
        if section.startswith("published") and not args.published:
            continue
        left = min(limit, end - time.monotonic()) if not args.cpu else 600
        if left < 15:
            print(f"{section}: no time left", flush=True)
            continue
        began, log = time.monotonic(), out / f"{section.replace(' ', '-')}.log"
        command = [sys.executable, __file__, "--section", section, "--results", str(results)] + ["--cpu"] * args.cpu
        command += ["--published", args.published] if args.published else []
        with log.open("wb") as file:
            try:
                code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=left).returncode
            except subprocess.TimeoutExpired:
                code = "over its time"
        failed += code != 0
        print(f"{section}: {'ok' if code == 0 else f'FAILED ({code})'}, {time.monotonic() - began:.0f} s", flush=True)
        if code != 0:
            print("   " + "\n   ".join(log.read_text(errors="replace").splitlines()[-8:]), flush=True)
    print(results.read_text() if results.exists() else "nothing was found")
    return failed


class Case:
    """Holds what the sections share: trainers of a preset on a device, on random documents."""

    def __init__(self, args):
        sys.path[:0] = [
            str(ROOT / "workflow"),
            str(ROOT / "benchmarks"),
            str(ROOT / "tests"),
            str(ROOT / "tests/unit/model"),
        ]
        import torch

        from babelmill.training.kernels.compilation import set_gpu_options

        self.torch, self.args, self.cuda = torch, args, not args.cpu
        self.device = torch.device("cuda:0" if self.cuda else "cpu")
        torch.set_num_threads(min(8, os.cpu_count() or 1))
        set_gpu_options()

    def note(self, **values) -> None:
        """Write a result."""
        with open(self.args.results, "a") as file:
            file.write(json.dumps({"section": self.args.section} | values) + "\n")

    def wait(self) -> None:
        """Wait for the GPU."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def trainer(
        self,
        preset,
        length,
        micro,
        device=None,
        batch=None,
        compiled=None,
        dropout=None,
        mixes=True,
        architecture="gpt_bert",
        **train,
    ):
        """Return a trainer. On a GPU it is compiled, unless `compiled` says otherwise."""
        import step

        from babelmill.config.resolve import Configuration
        from babelmill.runtime.processes import Processes
        from babelmill.training.kernels.compilation import Graphs

        device = device or self.device
        configured = Configuration([("gpu", {"preset": preset})]).model("eng")
        one_length = dict(sequence_lengths=[length], phase_starts=[0.0], batch_reduction=1.0, max_steps=100_000)
        sizes = dict(global_batch_tokens=batch or micro, micro_batch_tokens=micro)
        section = step.laid_over(configured.train, **one_length, **sizes, **{"precision": "bf16"} | train)
        drop = {} if dropout is None else dict(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        model = step.laid_over(configured.model, layer_mixing=mixes, architecture=architecture, **drop)
        size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        processes = Processes(rank, size, size, device)
        compiles = device.type == "cuda" if compiled is None else compiled
        words = configured.tokenizer.vocab_size
        return step.make_trainer(model, section, words, processes, micro, Graphs() if compiles else None)

    def gradient(self, trainer, number=3):
        """Return the gradient of a step before clipping, and the sums of its loss, both on the CPU."""
        trainer.model.train()
        trainer.network.begin_step(number)
        sums = trainer._learn_share(trainer.plan.step(number))
        return trainer._gradients.flat.double().cpu(), sums.cpu()


def main() -> int:
    """Run all sections, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu-results")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--published", metavar="CLONE")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--section", help="run one section alone")
    parser.add_argument("--results", metavar="FILE", default="gpu.jsonl", help="where --section writes to (gpu.jsonl)")
    args = parser.parse_args()
    if args.section is None:
        return run_sections(args)
    name, *more = args.section.split()
    getattr(gpu_sections, name)(Case(args), *more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
