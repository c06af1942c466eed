"""Define the sections of `gpu.py`: what each of its processes checks or measures.

A section is a function of a `Case` of `gpu.py` and the words behind its name. They import what they need, since each
process runs one of them.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("gpu.py")
SMALL, TINY = ("small", 128, 8192), ("tiny", 32, 256)  # preset, tokens per row and in a pass; TINY for a CPU
KINDS = {  # kinds of kernels, as patterns of their names; the first that fits counts
    "NCCL": "nccl",
    "feed-forward, without products": "^_geglu",
    "attention": "^_forward|^_backward|^_gate_|^_gradient|fmha|flash|sdpa|attention",
    "scatter (atomics)": "scatter|index_put|indexing_backward",
    "dropout, sums, normalisation": "^_mix_forward|^_mix_backward|^_begin_sums",
    "matrix times vector (mixing)": "gemv|dot_kernel",
    "fp32 products (mixing)": "sgemm|f32f32|gemmSN|s1688gemm|simt",
    "products": "gemm|nvjet|cutlass|xmma|splitK|Cijk",
    "optimizer": "multi_tensor|FusedAdam|lerp",
    "copies": "Memcpy|Memset|memcpy|copy",
    "compiled": "^triton",
    "others": "",
}


def difference(got, wanted) -> float:
    """Return the norm of a difference, relative to the norm of the wanted values."""
    return float((got - wanted).norm() / wanted.norm())


def environment(case) -> None:
    """Report the machine, what is missing, and which kernels training uses.

    Scoring uses PyTorch's attention: rows that may attend to nothing must not give NaN there.
    """
    torch = case.torch
    from babelmill.model.gpt_bert import GPTBert, GPTBertShape
    from babelmill.runtime.processes import Processes
    from babelmill.training.kernels.dropout import Keys
    from babelmill.training.kernels.install import install

    found = {"torch": torch.__version__, "cores": os.cpu_count()}
    if case.cuda:
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "hip": torch.version.hip}
        alone = Processes(0, 1, 1, case.device)
        model = GPTBert(GPTBertShape(16, 128, 64, 2, 1)).to(case.device)
        found["our kernels"] = install(model, Keys(0, case.device), alone, "bf16")
        for length in (64, 128, 192, 512):
            q = torch.randn(2, 12, length, 64, device=case.device, dtype=torch.bfloat16)
            bias = torch.zeros(2, 12, length, length, device=case.device, dtype=torch.bfloat16)
            bias[1, :, 5:] = torch.finfo(torch.bfloat16).min / 2
            result = torch.nn.functional.scaled_dot_product_attention(q, q, q, bias)
            found[f"NaN in scores of {length} tokens"] = bool(result.isnan().any())
    case.note(**found)
    assert not any(value for key, value in found.items() if key.startswith("NaN"))


def exact(case) -> None:
    """Compare with the published numbers in float64, then gradients with this machine's CPU; and resume."""
    torch, device = case.torch, case.device
    import test_model
    from safetensors import safe_open

    from babelmill.model.gpt_bert import GPTBert, GPTBertShape

    with safe_open(test_model.GOLDEN, "pt") as file:
        shape = GPTBertShape(**json.loads(file.metadata()["config"]))
        tensors = {name: file.get_tensor(name).to(device) for name in file.keys()}
    for implementation in ("plain", "sdpa"):
        model = GPTBert(shape).double().to(device)
        model.load_state_dict(test_model.group(tensors, "weight."))
        test_model.test_equals_the_published_implementation((shape, tensors), model, implementation)
    case.note(golden="hidden states, logits, losses and gradients equal to 1e-9 in float64")

    failed = compare_gradients(case, "eager", "compiled", dropout=0.0)
    small = SMALL if case.cuda else TINY
    trainer = case.trainer(*small)
    for number in range(3):
        trainer.run_step(number)
    saved = {name: t.detach().cpu().clone() for name, t in trainer.state.tensors().items()}
    resumed = case.trainer(*small)
    resumed.state.restore(saved)
    ends = []
    for each in (trainer, resumed):
        each.run_step(3)
        ends.append(torch.cat([p.detach().double().flatten().cpu() for p in each.model.parameters()]))
    same = torch.equal(*ends)
    case.note(run="resumed", weights_error=difference(*ends), bitwise=same)
    assert not failed and same, failed


def dropped(case) -> None:
    """Compare gradients with dropout, which drops the same elements on each device: GPT-BERT's and NorBERT4's."""
    failed = [
        name
        for values in ({}, {"mixes": False}, {"architecture": "norbert4"})
        for name in compare_gradients(case, "compiled", **values)
    ]
    assert not failed, failed


def compare_gradients(case, *ways: str, **values) -> list[str]:
    """Compare the gradient of a step with that of this machine's CPU in fp32; in fp32 and bf16, and twice each.

    Return the runs that are wrong, or whose second gradient is another. Without a GPU, nothing is compiled.
    """
    torch, small = case.torch, SMALL if case.cuda else TINY
    given = "".join(f", {name} {value}" for name, value in values.items())
    wanted, sums = case.gradient(case.trainer(*small, device=torch.device("cpu"), precision="fp32", **values))
    failed = []
    for way in ways if case.cuda else ("eager",):
        for precision, limit in {"fp32": 1e-4, "bf16": 5e-2}.items():
            trainer = case.trainer(*small, compiled=way == "compiled", precision=precision, **values)
            got, found = case.gradient(trainer)
            again, _ = case.gradient(trainer)
            error, name, same = difference(got, wanted), f"{way}, {precision}{given}", torch.equal(got, again)
            loss = difference(found[:, 0], sums[:, 0])
            case.note(run=name, gradient_error=error, loss_error=loss, repeats_bitwise=same)
            failed += [name] if not (error < limit and same) else []
    return failed


def speed(case, preset, length, micro, kind="") -> None:
    """Measure steps as in training: time, MFU, memory, kernels by kind.

    Kinds: "unmixed" (without layer mixing), "adamw", "muon" (with a decay of 0.5), "norbert4", "unrecorded" (without
    CUDA graphs), "plain" (without our kernels).
    """
    assert kind in ("", "unmixed", "adamw", "muon", "norbert4", "unrecorded", "plain"), f"{kind}: no such kind of step"
    from babelmill.runtime.cost import peak_of
    from babelmill.runtime.watching import device_name, peak_memory
    from babelmill.training.kernels import install

    if not case.cuda:
        preset, length, micro = "tiny", 32, 128
    length = int(length)
    began = time.monotonic()
    values = {
        "norbert4": {"architecture": "norbert4"},
        "adamw": {"optimizer": "adamw"},
        "muon": {"optimizer": "muon", "weight_decay": 0.5},
    }.get(kind, {})
    if kind == "plain":
        install.use_kernels = lambda *_: False
    trainer = case.trainer(preset, length, int(micro), mixes=kind != "unmixed", **values)
    trainer._recorder._works = trainer._recorder._works and kind != "unrecorded"
    first, steps = (8, 12) if case.cuda else (2, 2)  # in the first ones, passes are compiled and recorded
    for number in range(first):
        trainer.run_step(number)
    beginning = time.monotonic() - began
    case.wait()
    began, host, work, tokens = time.perf_counter(), 0.0, 0.0, 0
    for number in range(first, first + steps):
        start = time.perf_counter()
        step = trainer.run_step(number).step
        host += time.perf_counter() - start
        tokens += len(step.rows) * length
        work += trainer.network.flops(length, len(step.rows) * length, int(step.rows.targets.sum()))
    case.wait()
    seconds, peak = time.perf_counter() - began, peak_of(device_name(case.device))
    mfu, memory = work / seconds / peak if peak else None, peak_memory(case.device) / 1024
    case.note(ms=1e3 * seconds / steps, host_ms=1e3 * host / steps, tokens_per_second=tokens / seconds)
    case.note(mfu=mfu, memory_gib=memory, seconds_to_begin=beginning, recorded=len(trainer._recorder._recorded))
    if not case.cuda:
        return
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for number in range(30, 33):
            trainer.run_step(number)
        case.wait()
    kinds, count = dict.fromkeys(KINDS, 0.0), 0
    events = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    for event in events:
        kinds[next(k for k, name in KINDS.items() if re.search(name, event.key))] += event.self_device_time_total / 3e3
        count += event.count
    top = [(e.key[:90], e.count // 3, round(e.self_device_time_total / 3e3, 3)) for e in events[:25]]
    case.note(kernels=count / 3, ms_by_kind={kind: round(ms, 3) for kind, ms in kinds.items()}, top=top)


def published(case, preset, length, tokens) -> None:
    """Measure a step of the published code, as in its training loop, but without reading data."""
    torch = case.torch
    sys.path.insert(0, str(Path(case.args.published) / "pretraining"))
    import lamb
    import model_extra
    from torch import nn
    from torch.nn import functional as F

    from babelmill.config.resolve import Configuration
    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.training.optimization.optim import parameter_groups

    if not case.cuda:
        preset, length, tokens = "tiny", 32, 128
    length, rows = int(length), int(tokens) // int(length)
    configured = Configuration([("gpu", {"preset": preset})]).model("eng")
    shape = GPTBertShape(vocab_size=configured.tokenizer.vocab_size, **configured.model.shape())
    model = model_extra.Bert(shape).to(case.device)
    averages = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = lamb.Lamb(parameter_groups(model.named_parameters(), 0.1), 1e-4)
    ids = torch.randint(shape.vocab_size, (length, rows), device=case.device)
    masks = torch.zeros(rows, 1, length, length, dtype=torch.bool, device=case.device)
    labels = torch.where(torch.rand(length, rows, device=case.device) < 0.58, ids, -100).flatten()
    chosen = torch.nonzero(labels != -100).squeeze(1)

    def step() -> None:
        with torch.autocast(case.device.type, torch.bfloat16):
            words, relative = model.embedding(ids)
            hidden = model.transformer(words, masks, relative)
            scores = model.classifier.nonlinearity(hidden.flatten(0, 1)[chosen])
            loss = F.cross_entropy(scores, labels[chosen]) + 1e-4 * torch.logsumexp(scores, -1).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, mean in zip(model.parameters(), averages, strict=True):
                mean.mul_(0.999).add_(0.001 * parameter)

    for _ in range(3):
        step()
    case.wait()
    began, times = time.perf_counter(), 8 if case.cuda else 1
    for _ in range(times):
        step()
    case.wait()
    case.note(ms=1e3 * (time.perf_counter() - began) / times)


def waits(case) -> None:
    """Check that nothing in a step waits for the GPU. Passes are not recorded here: recording one waits."""
    torch = case.torch
    trainer = case.trainer(
        *(("small", 128, 2048) if case.cuda else ("tiny", 32, 128)), batch=8192 if case.cuda else 256
    )
    trainer._recorder._works = False
    for number in range(3):
        trainer.run_step(number)
    if case.cuda:
        torch.cuda.set_sync_debug_mode("error")
    outcome = trainer.run_step(3)
    if case.cuda:
        torch.cuda.set_sync_debug_mode("default")
    outcome.norm.item()
    case.note(waits=0)


def parts(case) -> None:
    """Measure single parts of a step in ms: the optimizer, a micro-batch, attention, products that limit the rest."""
    torch = case.torch
    from babelmill.model.mixing import LayerMixing

    def note(name, function, times=10 if case.cuda else 1) -> float:
        for _ in range(3):
            function()
        case.wait()
        began = time.perf_counter()
        for _ in range(times):
            function()
        case.wait()
        ms = 1e3 * (time.perf_counter() - began) / times
        case.note(part=name, ms=round(ms, 3))
        return ms

    preset, length, tokens = ("base", 128, 16384) if case.cuda else ("tiny", 32, 1024)
    trainer = case.trainer(preset, length, tokens, compiled=False)
    step, finite = trainer.plan.step(0), torch.ones((), device=case.device)
    trainer.run_step(0)
    note("LAMB", lambda: trainer._optimizer.update(1e-4, finite))
    note("average", lambda: trainer.average.update(5))
    note("clipping", lambda: trainer._gradients.clip(1.0))
    rows = trainer._share(step)[0][1]
    note("micro-batch", lambda: trainer.network.micro_batch(trainer.stream, rows, length, step.weights))
    note("forward and backward, not compiled", lambda: trainer.run_pass(trainer.stream, rows, length, step.weights))
    hidden = torch.randn(tokens // length, length, trainer.model.config.hidden_size, device=case.device)
    mixing, layers = trainer.model.transformer.dwa_modules, 2 * trainer.model.config.num_hidden_layers
    change, gradient = torch.zeros_like(hidden, dtype=torch.bfloat16), torch.ones_like(hidden)
    trainer.network.keys.rows = torch.zeros(len(hidden), dtype=torch.int32, device=case.device)

    class Block(torch.autograd.Function):
        """Stands for a sub-block, and takes no time."""

        @staticmethod
        def forward(ctx, x):
            ctx.kind = x.dtype
            return change.view_as(change)

        @staticmethod
        def backward(ctx, _):
            return change if ctx.kind == change.dtype else gradient

    def mix(module) -> None:
        x, add = module.start(hidden.detach().requires_grad_())
        for _ in range(layers):
            x = add(x, Block.apply(x))
        x.backward(gradient)

    attend(case, trainer, hidden, note)
    note(f"layer mixing ({type(mixing).__name__})", lambda: mix(mixing))
    plain = LayerMixing(0)
    plain.alphas = mixing.alphas
    note("layer mixing without our kernels, dropout and normalisation", lambda: mix(plain))
    sizes = ((16384, 768, 5120), (16384, 2560, 768), (65536, 768, 5120), (16384, 384, 2560))
    for m, k, n in sizes if case.cuda else ((64, 64, 64),):
        a, b = (torch.randn(*size, device=case.device, dtype=torch.bfloat16) for size in ((m, k), (k, n)))
        ms = note(f"product {m} x {k} x {n}", lambda a=a, b=b: a @ b)
        case.note(part=f"product {m} x {k} x {n}", tflops=2e-9 * m * k * n / ms)


def attend(case, trainer, hidden, note) -> None:
    """Measure an attention block, forwards and backwards, with our kernels' tiles and with others."""
    torch = case.torch
    from babelmill.model.attention import visible
    from babelmill.model.gpt_bert import training_mask

    rows, length, _ = hidden.shape
    model, block = trainer.model, trainer.model.transformer.attention_layers[0]
    none = torch.zeros(rows, length, dtype=torch.int64, device=case.device)
    allowed = training_mask(none, none[:, 0] > 0)
    trainer.network.keys.begin_pass(none[:, 0], none[0], length, allowed)
    seen = visible(allowed, torch.bfloat16)
    given = (
        hidden.bfloat16().requires_grad_(),
        model.embedding(none[:1])[1],
        trainer.network._buckets(length, case.device),
    )

    def run() -> None:
        with torch.autocast(case.device.type, torch.bfloat16):
            result, _ = block(*given, seen)
        torch.autograd.grad(result, given[0], result, retain_graph=True)

    if not case.cuda:
        note("attention block", run)
        return
    from babelmill.training.kernels import attention_triton

    used = attention_triton.OTHERS, attention_triton.WARPS
    for others, warps in (used, (64, 4), (32, 8), (128, 8)):
        attention_triton.OTHERS, attention_triton.WARPS = others, warps
        note(f"attention block, tiles of {attention_triton.TILE} x {others}, {warps} warps", run)
    attention_triton.OTHERS, attention_triton.WARPS = used


def two_processes(case) -> None:
    """Run two processes on one GPU (gloo can, NCCL refuses): buckets, hooks and compiled blocks together."""
    torch = case.torch
    shape, batch = (("small", 128, 2048), 16384) if case.cuda else (("tiny", 32, 128), 512)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        trainer = case.trainer(*shape, batch=batch, dropout=0.0, precision="fp32")
        trainer.run_step(2)
        trainer.state.compare_replicas()
        if os.environ["RANK"] == "0":
            torch.save(trainer._gradients.flat.double().cpu(), Path(os.environ["FOLDER"]) / "gradient.pt")
        torch.distributed.barrier()
        return
    with tempfile.TemporaryDirectory() as folder:
        group = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", FOLDER=folder)
        command = [sys.executable, str(SCRIPT), "--section", "two_processes", "--results", case.args.results]
        command += ["--cpu"] * case.args.cpu
        ranks = [subprocess.Popen(command, env=group | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(2)]
        codes = [each.wait() for each in ranks]
        assert codes == [0, 0], codes
        two = torch.load(Path(folder) / "gradient.pt")
    trainer = case.trainer(*shape, batch=batch, dropout=0.0, precision="fp32")
    trainer.run_step(2)
    error = difference(trainer._gradients.flat.double().cpu(), two)
    case.note(two_processes_against_one=error)
    assert error < 1e-4, error
