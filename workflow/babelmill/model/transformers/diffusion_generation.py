"""Generate text with a masked diffusion model: LLaDA's sampler (Nie et al., 2025, arXiv:2502.09992, section 2.4).

The sampler appends mask tokens to the prompt. In each step the model predicts all of them. The sampler keeps the most
probable predictions (or random ones) and masks the others again. It fills the blocks from left to right.

This file is shipped with exported models: it imports nothing but torch.
"""

import torch

REMASKING = ("low_confidence", "random")


def noisy(logits: torch.Tensor, temperature: float, generator: torch.Generator | None) -> torch.Tensor:
    """Add noise to the logits so that the token with the largest one is a sample of softmax(logits / temperature).

    At temperature 0 the logits stay as they are. The noise is Gumbel noise in float64: lower precision
    cuts the noise off, which acts as a lower temperature (Zheng et al., 2024, arXiv:2409.02908).
    """
    if temperature == 0:
        return logits
    uniform = torch.rand(logits.shape, dtype=torch.float64, device=logits.device, generator=generator)
    return logits.double() / temperature - (-uniform.log()).log()


def _steps_of_a_block(gen_length: int, block_length: int | None, steps: int | None) -> tuple[int, list[int]]:
    """Return the length of a block, and how many tokens each of its steps keeps (the first steps may keep one more).

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
    """Return the prompts followed by `gen_length` new tokens, [B, T + gen_length] int64.

    Args:
        model: a masked language model whose scores at a position are for the token at this position.
        input_ids: [B, T] int64, prompts of the same length.
        mask_token_id: id of the mask token. It is never generated.
        gen_length: number of tokens to generate.
        block_length: number of tokens in a block. A block is complete before the next one begins. By default, all
            tokens are one block.
        steps: total number of forward passes, at least one per block; by default one per token.
        temperature: temperature of sampling; 0 takes the most probable tokens.
        cfg_scale: strength w of unsupervised classifier-free guidance. The scores are (1 + w) s - w s', where s' are
            the scores when the prompt is masked.
        remasking: which predictions a step keeps: the most probable ones ("low_confidence") or random ones ("random").
        generator: source of random numbers.

    Raises:
        ValueError: the numbers do not fit together.
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
            predicted = noisy(scores, temperature, generator).argmax(-1)
            if remasking == "random":
                sure = torch.rand(predicted.shape, device=scores.device, generator=generator)
            else:
                sure = scores.float().softmax(-1).gather(-1, predicted[..., None])[..., 0]
            sure = sure.masked_fill(here != mask_token_id, -1)  # never choose a position that is already filled
            best = sure.topk(kept, -1).indices
            here.scatter_(1, best, predicted.gather(1, best))
    return tokens


def _scores(
    model: torch.nn.Module, tokens: torch.Tensor, prompt: int, mask_token_id: int, cfg_scale: float
) -> torch.Tensor:
    """Return the model's scores, [B, T, V], after classifier-free guidance (see `cfg_scale` of `generate`)."""
    if cfg_scale == 0:
        return model(input_ids=tokens).logits
    hidden = tokens.clone()
    hidden[:, :prompt] = mask_token_id
    with_prompt, without = model(input_ids=torch.cat([tokens, hidden])).logits.chunk(2)
    return without + (1 + cfg_scale) * (with_prompt - without)
