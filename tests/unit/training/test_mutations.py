"""One-line edits that change results, each in a copy of the package: the stored figures find every one of them."""

import shutil
from dataclasses import dataclass

import pytest

from scripts import stored_figures

PACKAGE = stored_figures.ROOT / "workflow/babelmill"


@dataclass(frozen=True)
class Mutation:
    """An edit: `old` stands exactly once in the module and becomes `new`; figures of `section` must change."""

    name: str
    module: str
    old: str
    new: str
    section: str


MUTATIONS = [
    Mutation(
        "a document of exactly min_characters is dropped",
        "corpus/cleaning.py",
        "pc.greater_equal(length.filter(not_empty), corpus.min_characters)",
        "pc.greater(length.filter(not_empty), corpus.min_characters)",
        "corpus",
    ),
    Mutation(
        "99 % of the validation share",
        "corpus/__main__.py",
        "np.uint64(int(share * 2**64))",
        "np.uint64(int(0.99 * share * 2**64))",
        "corpus",
    ),
    Mutation("words are cut a letter earlier", "tokens/pretokenizer.py", "{{0,21}}", "{{0,20}}", "tokens"),
    Mutation(
        "a step more of warm-up",
        "training/plan/schedule.py",
        "rising, falling = int(steps * warmup),",
        "rising, falling = int(steps * warmup) + 1,",
        "plan",
    ),
    Mutation(
        "the same order of rows in every epoch",
        "training/plan/plan.py",
        "ORDER, phase, int(e), int(i))",
        "ORDER, phase, int(i))",
        "plan",
    ),
    Mutation(
        "hybrid rows counted with the ceiling",
        "training/plan/objectives.py",
        "return (index + 1) * n // d > index * n // d",
        "return -(-(index + 1) * n // d) > -(-index * n // d)",
        "plan",
    ),
    Mutation(
        "spans of up to four tokens",
        "training/plan/objectives.py",
        "longest_span: int = 3",
        "longest_span: int = 4",
        "batches",
    ),
    Mutation(
        "79 % of the chosen spans become <mask>",
        "training/batches/masking.py",
        "int((1 - hiding.random - hiding.keep) * 2**32)",
        "int((0.99 - hiding.random - hiding.keep) * 2**32)",
        "batches",
    ),
    Mutation(
        "</s> may be masked",
        "training/batches/token_batches.py",
        "hideable = learnable & (tokens != words.eos)",
        "hideable = learnable",
        "batches",
    ),
    Mutation(
        "another scale of attention",
        "training/kernels/pytorch_kernels.py",
        "scale = 1.0 / math.sqrt(3 * size)",
        "scale = 1.0 / math.sqrt(2 * size)",
        "gradients",
    ),
    Mutation(
        "distant buckets a position off",
        "model/attention.py",
        "math.log((max_position - 1) / middle)",
        "math.log(max_position / middle)",
        "gradients",
    ),
    Mutation(
        "the exact GELU in GEGLU",
        "training/kernels/pytorch_kernels.py",
        'activation = F.gelu(gate, approximate="tanh")',
        "activation = F.gelu(gate)",
        "gradients",
    ),
    Mutation(
        "no gradient of the z-loss",
        "training/networks/loss.py",
        "mul_(weight * (1 + 2 * z_loss_weight * normalizer))",
        "mul_(weight)",
        "gradients",
    ),
    Mutation(
        "learning rate times 1.001",
        "training/trainer.py",
        "update(step.learning_rate, finite)",
        "update(step.learning_rate * 1.001, finite)",
        "training",
    ),
    Mutation(
        "weight decay of biases",
        "training/optimization/optim.py",
        'NO_DECAY = ("bias", "layer_norm")',
        'NO_DECAY = ("layer_norm",)',
        "optimizers",
    ),
    Mutation(
        "a longer warm-up of the average",
        "training/optimization/optim.py",
        "(1 + step) / (60 + step)",
        "(1 + step) / (61 + step)",
        "averaging",
    ),
    Mutation(
        "another epsilon of clipping", "training/optimization/optim.py", "(norm + 1e-6)", "(norm + 1e-5)", "averaging"
    ),
    Mutation(
        "the masked score begins with the second token",
        "evaluation/scoring.py",
        "(np.cumsum(text, 1) - 1) % masks",
        "np.cumsum(text, 1) % masks",
        "scoring",
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_changed_line_is_found(mutation, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "babelmill")
    path = tmp_path / "babelmill" / mutation.module
    source = path.read_text(encoding="utf-8")
    assert source.count(mutation.old) == 1, f"{mutation.module} has changed: the edit must name a line that is there"
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    found = stored_figures.in_a_process([mutation.section], package=tmp_path)
    lines = stored_figures.compare({mutation.section: stored_figures.read_stored()[mutation.section]}, found)
    assert lines, f"no figure of {mutation.section} differs"
    print(*lines[:3], sep="\n")
