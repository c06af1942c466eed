"""Text from a masked diffusion model: LLaDA's sampler (Nie et al., 2025, arXiv:2502.09992, section 2.4).

Behind the prompt stands a row of masks. In each step the model predicts all of them; the predictions that are kept are
those it is surest of (or random ones), and the others are masked again. Blocks are filled from left to right.

This file is shipped with exported models: it imports nothing but torch.
"""

import torch

REMASKING = ("low_confidence", "random")


def noisy(logits: torch.Tensor, temperature: float, generator: torch.Generator | None) -> torch.Tensor:
    """Return scores whose largest is a sample of softmax(logits / temperature); the logits themselves at 0.

    Gumbel noise in float64: in a lower precision, rare tokens are drawn too often (Zheng et al., 2024,
    arXiv:2409.02908).
    """
    if temperature == 0:
        return logits
    uniform = torch.rand(logits.shape, dtype=torch.float64, device=logits.device, generator=generator)
    return logits.double() / temperature - (-uniform.log()).log()


def _steps_of_a_block(gen_length: int, block_length: int | None, steps: int | None) -> tuple[int, list[int]]:
    """Return the length of a block, and how many tokens each of its steps keeps, more in the first ones.

    Raises:
        ValueError: the numbers do not fit together.
    """
    block_length = gen_length if block_length is None else block_length
    if gen_length < 1 or block_length < 1 or gen_length % block_length:
        raise ValueError(f"gen_length {gen_length} is no multiple of block_length {block_length}")
    blocks = gen_length // block_length
    steps = gen_length if steps is None else steps
    if steps < blocks or steps % blocks:
        raise ValueError(f"steps {steps} is no multiple of the {blocks} blocks (gen_length / block_length)")
    count = min(steps // blocks, block_length)
    return block_length, [block_length // count + (step < block_length % count) for step in range(count)]


@torch.no_grad()
def generate(
    model: torch.nn.Module,
    input_ids: torch.Tensor,
    mask_token_id: int,
    gen_length: int = 128,
    block_length: int | None = None,
    steps: int | None = None,
    temperature: float = 0.0,
    cfg_scale: float = 0.0,
    remasking: str = "low_confidence",
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the prompts with `gen_length` tokens behind them, [B, T + gen_length] int64.

    Args:
        model: a masked language model whose scores at a position are those of the token there.
        input_ids: [B, T] int64, prompts of one length.
        mask_token_id: of the token that hides others; it is never generated.
        gen_length: tokens to generate.
        block_length: tokens that are filled before those to their right are; all by default.
        steps: forward passes in all, at least one per block; by default one per token.
        temperature: of sampling; 0 takes the likeliest tokens.
        cfg_scale: strength w of unsupervised classifier-free guidance, with scores (1 + w) s - w s of a hidden prompt.
        remasking: which predictions a step keeps: "low_confidence" keeps those the model is surest of, "random" any.
        generator: of random numbers.

    Raises:
        ValueError: numbers that do not fit together.
    """
    block_length, kept_by_step = _steps_of_a_block(gen_length, block_length, steps)
    if remasking not in REMASKING:
        raise ValueError(f"remasking is {remasking!r}; choose one of {', '.join(REMASKING)}")
    prompt = input_ids.size(1)
    tokens = torch.nn.functional.pad(input_ids, (0, gen_length), value=mask_token_id)
    for begin in range(prompt, prompt + gen_length, block_length):
        for kept in kept_by_step:
            scores = _scores(model, tokens, prompt, mask_token_id, cfg_scale)[:, begin : begin + block_length]
            scores[..., mask_token_id] = -torch.inf
            here = tokens[:, begin : begin + block_length]
            predicted, sure = _predict(scores, temperature, remasking, generator)
            sure = sure.masked_fill(here != mask_token_id, -1)  # what stands there already
            best = sure.topk(kept, -1).indices
            here.scatter_(1, best, predicted.gather(1, best))
    return tokens


def _predict(
    scores: torch.Tensor, temperature: float, remasking: str, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a token for each position of scores [B, T, V], and which to keep first: the largest of [B, T] numbers."""
    predicted = noisy(scores, temperature, generator).argmax(-1)
    if remasking == "random":
        return predicted, torch.rand(predicted.shape, device=scores.device, generator=generator)
    return predicted, scores.float().softmax(-1).gather(-1, predicted[..., None])[..., 0]


def _scores(
    model: torch.nn.Module, tokens: torch.Tensor, prompt: int, mask_token_id: int, cfg_scale: float
) -> torch.Tensor:
    """Return the model's scores, [B, T, V], guided towards the prompt."""
    if cfg_scale == 0:
        return model(input_ids=tokens).logits
    hidden = tokens.clone()
    hidden[:, :prompt] = mask_token_id
    with_prompt, without = model(input_ids=torch.cat([tokens, hidden])).logits.chunk(2)
    return without + (1 + cfg_scale) * (with_prompt - without)
