"""Orthogonalize matrices for Muon: all matrices of a shape at once, with matrix products alone."""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # by Jordan et al. (2024): they raise small singular values fastest
STEPS = 5
SMALLEST_NORM = 1e-7
AT_ONCE = 2**25  # elements: more matrices than that are not orthogonalized at once, to bound the memory


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Return matrices with the same singular vectors, and with singular values between about 0.7 and 1.2.

    Each step of Newton and Schulz's iteration replaces X by a X + (b X X^T + c (X X^T)^2) X, so a singular value s
    becomes a s + b s^3 + c s^5. Singular values that are nearly 0 stay small; a matrix of zeros stays one.

    Args:
        matrices: [matrices, rows, columns]. Products are computed in their type.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices  # X X^T is the smaller product
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(STEPS):
        product = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(product, product, product, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
