"""An exported folder under PyTorch's transformations, in `Trainer` and with adapters. Run by `test_hub.py`, with each version of transformers.

Nothing of the babelmill package is used, only what is in the folder. Compiled graphs are run by PyTorch (`aot_eager`):
what is in question is whether the model can be made one graph, forwards and backwards, and a C++ compiler takes minutes.
(Where forwards alone is, `eager` is twice as fast.)
"""

import pytest
import torch
from accelerate.state import AcceleratorState
from hub_folder import TEXTS, close, load, main_output
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    Trainer,
    TrainingArguments,
)

pytest_plugins = ["hub_folder"]
LABELS = torch.tensor([0, 1, 1])


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """Each test compiles anew, and what a Trainer writes into the environment is gone after it."""
    torch._dynamo.reset()
    AcceleratorState._reset_state(reset_partial_state=True)
    for name in ("MIXED_PRECISION", "DYNAMO_BACKEND", "DYNAMO_MODE", "DYNAMO_USE_FULLGRAPH", "DYNAMO_USE_DYNAMIC"):
        monkeypatch.setenv(f"ACCELERATE_{name}", "no")  # so that it is put back afterwards
        monkeypatch.delenv(f"ACCELERATE_{name}")


def test_gradients_of_one_graph(batch):
    """Of logits and states by other states, one after another, as attribution and probing want them."""
    model = load(AutoModelForMaskedLM)

    def gradient(output, source):
        return torch.autograd.grad(output.logits.square().sum(), output.hidden_states[source], retain_graph=True)[0]

    output = model(**batch, output_hidden_states=True)
    for source in (2, 1, 0, 2):
        close(gradient(output, source), gradient(model(**batch, output_hidden_states=True), source))


def test_compiled_as_one_graph(batch):
    """A training step with dropout."""
    model = load(AutoModelForMaskedLM, dtype=torch.float32).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    losses = [compiled(**batch, labels=batch["input_ids"]).loss for _ in range(2)]
    losses[1].backward()
    assert losses[0] != losses[1] and all(loss.isfinite() for loss in losses)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_trainer_compiles(tokenizer, tmp_path):
    """In bf16, and as one graph; that backwards is one too is seen above."""
    model = load(AutoModelForSequenceClassification, dtype=torch.float32)
    data = [{"label": n % 2, **tokenizer(text)} for n, text in enumerate(TEXTS[:2] * 2)]
    settings = {"torch_compile": True, "torch_compile_backend": "eager", "use_cpu": True, "report_to": "none"}
    arguments = TrainingArguments(tmp_path, max_steps=2, per_device_train_batch_size=4, bf16=True, **settings)
    before = model.score.weight.detach().clone()
    torch._dynamo.utils.counters.clear()
    found = Trainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
    assert found.global_step == 2 and 0 < found.training_loss < 10
    assert not torch.equal(model.score.weight, before)
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] > 0 and not counters["graph_break"]


@pytest.mark.parametrize(
    ("cls", "learning"), [(AutoModelForCausalLM, False), (AutoModelForSequenceClassification, True)]
)
def test_exports_for_any_batch_and_length(tokenizer, batch, cls, learning):
    """Within `no_grad` and outside."""
    model = load(cls)
    model.config.use_cache = False
    sizes = {0: torch.export.Dim("rows", min=2, max=64), 1: torch.export.Dim("length", min=2, max=512)}
    with torch.set_grad_enabled(learning):
        exported = torch.export.export(model, (), dict(batch), dynamic_shapes=dict.fromkeys(batch, sizes))
    texts = [*TEXTS, "A longer text than all the others before it in this file"] * 2
    other = tokenizer(texts, return_tensors="pt", padding=True)
    close(main_output(exported.module()(**other)), main_output(model(**other)))


def test_adapters(tokenizer, batch, tmp_path):
    """With the layers that the card names; peft has no default for a model of the Hub, and says so."""
    with pytest.raises(ValueError, match="target_modules"):
        get_peft_model(load(AutoModelForSequenceClassification), LoraConfig(task_type="SEQ_CLS"))
    layers = ["in_proj_qk", "in_proj_vg", "out_proj"]
    config = LoraConfig(task_type="SEQ_CLS", target_modules=layers, modules_to_save=["score"])
    model = get_peft_model(load(AutoModelForSequenceClassification, dtype=torch.float32), config)
    adapted = {name.split(".lora_A")[0].split(".")[-1] for name, _ in model.named_parameters() if ".lora_A" in name}
    assert adapted == set(layers)
    data = [{"label": n % 2, **tokenizer(text)} for n, text in enumerate(TEXTS[:2] * 2)]
    arguments = TrainingArguments(tmp_path / "tuned", max_steps=3, learning_rate=0.1, use_cpu=True, report_to="none")
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    Trainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {name for name, value in model.named_parameters() if value.requires_grad}
    assert all("lora_" in name or "score" in name for name in moved)
    model.save_pretrained(tmp_path / "saved")
    torch.manual_seed(1)
    again = load(AutoModelForSequenceClassification, dtype=torch.float32)
    again.load_adapter(str(tmp_path / "saved"))
    close(again.eval()(**batch).logits, model.eval()(**batch).logits, 1e-5)
