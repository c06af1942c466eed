"""The path of a GPU as a whole: all kernels, in Triton's interpreter, in compiled graphs, against the plain network."""

from helpers.kernels.kernel_scripts import run


def test_a_step_with_all_kernels_has_the_same_gradient():
    assert run("kernel_checks.py", "step", "32", TRITON_INTERPRET="1").count("the gradient of a step, ") == 3
