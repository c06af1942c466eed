"""Measure the GPU memory of training a model of 8 billion parameters, on a machine without a GPU.

    python benchmarks/gpu/memory_of_training.py FOLDER [--layers 32]

The model has the shape of LLaDA-8B, in a file of zeros that takes no room. The workflow prepares what training needs
(16 GB on disk), for the preset `diffusion_8b`. Then 1, 2, 4 and 8 processes train four steps on GPUs that compute
nothing (`null_gpu.py` says what they need): adapters, and all weights. For the GPU that needs most, the table has the
memory that PyTorch allocated, what it reserved, and what `babelmill plan` calculates. The last column is the most
memory of the host that a process used; eight of them take 17 GiB. With NULL_GPU_GB=42, each GPU has 42 GiB.

Sums over GPUs are not computed either, but the processes must decide alike. So they exchange small tensors on the host.
"""

import argparse
import json
import os
import re
import runpy
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import null_gpu
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from workflow_run import ENVIRONMENT, ROOT, make

sys.path.insert(0, str(ROOT / "workflow"))

GPUS = (1, 2, 4, 8)
WIDTH, INNER, ENTRIES, SPECIAL = 4096, 12288, 126464, {"begin": 126080, "end": 126081, "mask": 126336}
MATRICES = {"q_proj": (WIDTH, WIDTH), "k_proj": (WIDTH, WIDTH), "v_proj": (WIDTH, WIDTH), "attn_out": (WIDTH, WIDTH)}
MATRICES |= {"ff_proj": (INNER, WIDTH), "up_proj": (INNER, WIDTH), "ff_out": (WIDTH, INNER)}
IN_A_BLOCK = MATRICES | {"attn_norm": (WIDTH,), "ff_norm": (WIDTH,)}
WORKER, PEAKS = "--worker", "peaks of a process: "


def write_model(folder: Path, layers: int) -> None:
    """Write a model as LLaDA's repository has it. Its weights are zeros, and its tokenizer knows single bytes."""
    folder.mkdir(exist_ok=True)
    shapes = {"wte": (ENTRIES, WIDTH), "ln_f": (WIDTH,), "ff_out": (ENTRIES, WIDTH)}
    shapes |= {f"blocks.{i}.{name}": shape for i in range(layers) for name, shape in IN_A_BLOCK.items()}
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * torch.Size(shape).numel()
        header[f"model.transformer.{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    written = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(written)) + written)
        file.truncate(8 + len(written) + end)
    config = {"model_type": "llada", "d_model": WIDTH, "n_layers": layers, "n_heads": 32, "mlp_hidden_size": INNER}
    config |= {"embedding_size": ENTRIES, "max_sequence_length": 4096, "rms_norm_eps": 1e-5}
    config |= {"bos_token_id": SPECIAL["begin"], "eos_token_id": SPECIAL["end"], "mask_token_id": SPECIAL["mask"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tokenizer(folder / "tokenizer.json")


def write_tokenizer(path: Path) -> None:
    """Write a tokenizer with as many entries as LLaDA's."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    entries = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    entries |= {f"unused {i}": i for i in range(len(entries), ENTRIES)}
    for name, number in SPECIAL.items():
        del entries[f"unused {number}"]
        entries[f"<{name}>"] = number
    tokenizer = Tokenizer(models.BPE(entries, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(f"<{name}>", special=True) for name in SPECIAL])
    tokenizer.save(str(path))


def configuration(folder: Path, rank: int) -> dict[str, Any]:
    """Return the configuration. `rank`: of the adapters; 0 trains all weights."""
    train = {"max_steps": 4, "lora_rank": rank, "non_finite": "skip"}
    sections = {"preset": "diffusion_8b", "model": {"source": str(folder / "llada")}, "train": train}
    return sections | {"languages": {"eng": {"corpus": {"files": [str(folder / "text.txt")], "document": "line"}}}}


def train(folder: Path, gpus: int) -> list[float]:
    """Train on GPUs that compute nothing. Return the GiB that a process allocated, reserved, and took of the host."""
    settings = f"results/settings/train/{(folder / 'results/of/eng/train').readlink().name}.json"
    launched = ["-m", "torch.distributed.run", "--nproc-per-node", gpus, "--", Path(__file__).resolve(), WORKER]
    options = [settings, "--gpus", gpus, "--threads", 2]
    done = null_gpu.run([*launched, *options], gpus, cwd=folder, capture_output=True, text=True)
    peaks = [json.loads(found) for found in re.findall(f"{PEAKS}(.*)", done.stdout)]
    if len(peaks) < gpus:
        sys.exit(done.stderr + done.stdout)
    return [max(column) for column in zip(*peaks, strict=True)]


def host_memory() -> int:
    """Return this process's memory without pages of files, with some megabytes that were copied to the GPU."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def work(options: list[str]) -> None:
    """Train as one of the processes until the first checkpoint would be made, and print the peaks."""
    from babelmill.runtime.processes import Processes
    from babelmill.training.loop import Loop

    def on_the_host(tensor: torch.Tensor, exchange: Callable[[torch.Tensor], object]) -> torch.Tensor:
        if dist.is_initialized() and dist.get_world_size() > 1:
            copied = tensor.cpu()
            exchange(copied)
            tensor.copy_(copied)
        return tensor

    def watch() -> None:
        while True:
            host.append(host_memory())
            time.sleep(0.02)

    def end(loop: Loop, done: int) -> None:
        if done < loop._steps:
            sys.exit(f"training left after step {done}")
        peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), max(host)
        sys.stdout.write(f"{PEAKS}{[number / 2**30 for number in peaks]}\n")
        sys.stdout.flush()
        os._exit(0)

    host = [0]
    threading.Thread(target=watch, daemon=True).start()
    Processes.sum_ = lambda _, tensor: on_the_host(tensor, dist.all_reduce)
    Processes.from_main_ = lambda _, tensor: on_the_host(tensor, lambda x: dist.broadcast(x, 0))
    Loop._save = end
    sys.argv = ["train", *options]
    runpy.run_module("babelmill.train", run_name="__main__")


def planned(folder: Path, gpus: int) -> str:
    """Return the GiB that `babelmill plan` calculates."""
    command = [sys.executable, "-m", "babelmill", "plan", "eng", "--configfile", "config.yaml", "--gpu", "H200"]
    command += ["--gpus", str(gpus)]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    heading, row, *_ = (re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines())
    return dict(zip(heading, row, strict=True))["GiB"]


def main() -> None:
    """Prepare, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    args = parser.parse_args()
    folder = args.folder.resolve()
    null_gpu.run(["-c", "pass"])  # what is lacking shows before anything is made
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "llada", args.layers)
    (folder / "text.txt").write_text("".join(f"Fox {i} jumps.\n" for i in range(20_000)), encoding="utf-8")
    print("| trained | GPUs | allocated | reserved | planned | host |\n|---|---|---|---|---|---|")
    for name, rank in (("adapters", 16), ("all weights", 0)):
        make(folder, configuration(folder, rank), ["eng"], 2, "shards", "base_model")
        for gpus in GPUS:
            allocated, reserved, host = train(folder, gpus)
            measured = f"{allocated:.1f} | {reserved:.1f} | {planned(folder, gpus)} | {host:.1f}"
            print(f"| {name} | {gpus} | {measured} |", flush=True)


if __name__ == "__main__":
    if WORKER in sys.argv:
        work(sys.argv[sys.argv.index(WORKER) + 1 :])
    else:
        main()
