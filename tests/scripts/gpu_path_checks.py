"""Compare a step of training as on a GPU, with all kernels, with a CPU's. Run with TRITON_INTERPRET=1, read at the import."""

import sys
import tempfile
from pathlib import Path

import torch

from babelmill.training.batches.token_batches import MicroBatch
from babelmill.training.kernels import attention_triton, kernel_trial, mixing_triton, spans
from babelmill.training.kernels.attention_block_triton import FusedAttention
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.geglu_triton import NormalizedGEGLU
from babelmill.training.kernels.install import install, install_triton
from babelmill.training.kernels.mixing_triton import FusedMixing
from babelmill.training.networks import gpt_bert
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from helpers.kernels import mended_interpreter  # noqa: F401  (it mends the interpreter)
from helpers.training.tiny_trainer import trainer_maker

STEP = 3
spans.TILE = attention_triton.TILE = attention_triton.OTHERS = 16  # small tiles, so that short rows have several
mixing_triton.COLUMNS = 64  # so that products have parts
kernel_trial.passed = lambda *_: True  # trials have tests of their own
gpt_bert.install = lambda *given: install(*given) | (install_triton(given[0], given[2], "bf16") if given[-1] else set())
FusedMixing.kind = torch.float32  # so that nothing is rounded, and the numbers are nearly equal


class AsOnAGPU(GPTBertNetwork):
    """A network with our kernels, and compiled, on a CPU."""

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Forbid other graphs after the first pass."""
        result = super().forward(batch, groups)
        torch.compiler.set_stance("fail_on_recompile")
        return result


def main(folder: Path, length: int) -> None:
    """Compare the gradients and the sums of a step with dropout, in passes of 3 and of 2 rows.

    Args:
        folder: for the shards of documents.
        length: tokens per row, most of which have several documents.
    """
    sizes = {"global_batch_tokens": 5 * length, "micro_batch_tokens": 3 * length, "dropout": 0.1, "width": 32}
    sizes |= {"sequence_lengths": [length], "phase_starts": [0.0]}
    make = trainer_maker(folder)
    plain, fused = make(**sizes), make(network=AsOnAGPU, graphs=Graphs("aot_eager"), **sizes)
    kinds = [type(module) for module in fused.model.modules()]
    assert (kinds.count(FusedAttention), kinds.count(NormalizedGEGLU), kinds.count(FusedMixing)) == (2, 2, 1)
    sums = []
    for trainer in (plain, fused):
        trainer.model.train()
        trainer.network.begin_step(STEP)
        sums.append(trainer._learn_share(trainer.plan.step(STEP), []))
    seen = fused.network.keys.spans
    assert seen.shape[2] == length // 16 and len(seen.unique()) > 2, "some tiles see a part of the row"
    wanted, found = plain._gradients.flat, fused._gradients.flat
    difference = ((found - wanted).norm() / wanted.norm()).item()
    print(f"the gradient of a step: {difference:.1e}")
    assert difference < 1e-5
    torch.testing.assert_close(sums[1], sums[0], rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder), int(sys.argv[1]))
