"""One-line edits that change results, each in a copy of the package: the stored figures find every one of them."""

import shutil
from collections.abc import Iterator

import pytest

from scripts import stored_figures

pytestmark = pytest.mark.nightly
PACKAGE = stored_figures.ROOT / "workflow/babelmill"

# The section whose figures must change, the module, the name of the edit; a part of a line that stands exactly once in
# the module, and what takes its place.
MUTATIONS = r"""
corpus | corpus/cleaning.py | a document of exactly min_characters is dropped
- pc.greater_equal(length.filter(not_empty), corpus.min_characters)
+ pc.greater(length.filter(not_empty), corpus.min_characters)

corpus | corpus/choosing.py | 99 % of the validation share
- np.uint64(int(share * 2**64))
+ np.uint64(int(0.99 * share * 2**64))

tokens | tokens/pretokenizer.py | words are cut a letter earlier
- {{0,21}}
+ {{0,20}}

plan | training/plan/schedule.py | a step more of warm-up
- rising, falling = int(steps * warmup),
+ rising, falling = int(steps * warmup) + 1,

plan | training/plan/plan.py | the same order of rows in every epoch
- ORDER, *about)
+ ORDER, phase, int(i))

plan | training/plan/objectives.py | hybrid rows counted with the ceiling
- return (index + 1) * n // d > index * n // d
+ return -(-(index + 1) * n // d) > -(-index * n // d)

batches | training/plan/objectives.py | spans of up to four tokens
- longest_span: int = 3
+ longest_span: int = 4

batches | training/batches.py | 79 % of the chosen spans become <mask>
- int((1 - hiding.random - hiding.keep) * 2**32)
+ int((0.99 - hiding.random - hiding.keep) * 2**32)

batches | training/batches.py | </s> may be masked
- hideable = learnable & (tokens != words.eos)
+ hideable = learnable

gradients | training/kernels/dropout.py | another scale of attention
- scale = 1.0 / math.sqrt(3 * size)
+ scale = 1.0 / math.sqrt(2 * size)

gradients | model/attention.py | distant buckets a position off
- math.log((max_position - 1) / middle)
+ math.log(max_position / middle)

gradients | model/gpt_bert.py | the exact GELU in GEGLU
- x * F.gelu(gate, approximate="tanh")
+ x * F.gelu(gate)

gradients | training/networks/loss.py | no gradient of the z-loss
- mul_(weight * (1 + 2 * z_loss_weight * normalizer))
+ mul_(weight)

training | training/trainer.py | learning rate times 1.001
- update(step.learning_rate, finite)
+ update(step.learning_rate * 1.001, finite)

optimizers | training/optimization/optim.py | weight decay of biases
- NO_DECAY = ("bias", "layer_norm")
+ NO_DECAY = ("layer_norm",)

optimizers | training/optimization/optim.py | another size of Muon's updates
- -learning_rate * 0.2 * size
+ -learning_rate * 0.21 * size

gradients | model/norbert4.py | local layers see a token less far
- distance <= window
+ distance < window

options | training/plan/plan.py | the same order of documents in every epoch
- DOCUMENTS, *about)
+ DOCUMENTS, phase, int(i))

averaging | training/optimization/optim.py | a longer warm-up of the average
- (1 + step) / (60 + step)
+ (1 + step) / (61 + step)

averaging | training/optimization/gradients.py | another epsilon of clipping
- (norm + 1e-6)
+ (norm + 1e-5)

scoring | evaluation/rows.py | every token but one is hidden once
- text.scored[turn::passes], mask
+ text.scored[turn + 1::passes], mask
"""


def mutations() -> Iterator:
    for block in MUTATIONS.strip().split("\n\n"):
        about, old, new = block.splitlines()
        *where, name = about.split(" | ")
        yield pytest.param(*where, old.removeprefix("- "), new.removeprefix("+ "), id=name)


@pytest.mark.parametrize(("section", "module", "old", "new"), [*mutations()])
def test_a_changed_line_is_found(section, module, old, new, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "babelmill")
    path = tmp_path / "babelmill" / module
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{module} has changed: the edit must name a line that is there"
    path.write_text(source.replace(old, new), encoding="utf-8")
    found = stored_figures.in_a_process([section], package=tmp_path)
    lines = stored_figures.compare({section: stored_figures.read_stored()[section]}, found)
    assert lines, f"no figure of {section} differs"
    print(*lines[:3], sep="\n")
