"""Use our kernels between the two products of a GPT-BERT's feed-forward blocks, in training on a GPU."""

from babelmill.model.gpt_bert import GPTBert
from babelmill.runtime.processes import Processes
from babelmill.training.kernels import kernel_trial


def install_fused(model: GPTBert, processes: Processes, precision: str) -> None:
    """Let a model use our kernels (`geglu_triton.py`) if all processes can use them. If not, a warning says why.

    Args:
        model: the model.
        processes: this process among the others; all call this together.
        precision: `train.precision`. Our kernels are for bf16.
    """
    if precision != "bf16":
        return

    def trial() -> float:
        from babelmill.training.kernels import kernel_differences  # imports Triton, which comes with PyTorch for GPUs

        return kernel_differences.of_geglu(processes.device, model.config.intermediate_size)

    if kernel_trial.passed(processes, trial, "feed-forward blocks use PyTorch's operations, which are slower"):
        from babelmill.training.kernels import geglu_triton

        geglu_triton.install(model)
