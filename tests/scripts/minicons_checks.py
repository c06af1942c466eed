"""What minicons says of an exported folder, and what the folder itself says. Run by `test_suites.py`.

    python minicons_checks.py FOLDER causal|masked

prints for each sentence both log-likelihoods, those of a good sentence before those of a bad one.
"""

import sys

import torch
from minicons import scorer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

PAIR = ["The black cat sat on the mat near the old door.", "The black cat sat mat on the near the old door."]


@torch.inference_mode()
def expected(folder, kind, ids):
    """Log-likelihood of ids [T], `<s>` first: each token from those before it, or from all others."""
    if kind == "causal":
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
        scores = model(ids[None]).logits[0, :-1]
    else:
        model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)
        hidden = ids.repeat(len(ids), 1).fill_diagonal_(4)
        scores = model(hidden).logits.diagonal().mT[1:]
    return scores.log_softmax(-1).gather(1, ids[1:, None]).sum().item()


def main(folder, kind):
    # Its masked scorer takes `<s>` for a word of the text unless it is told that it is the [CLS] of this tokenizer.
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    cls = {"causal": scorer.IncrementalLMScorer, "masked": scorer.MaskedLMScorer}[kind]
    found = cls(folder, "cpu", tokenizer=tokenizer, trust_remote_code=True).sequence_score(
        PAIR, reduction=lambda scores: scores.sum(0).item()
    )
    for sentence, score in zip(PAIR, found, strict=True):
        print(score, expected(folder, kind, torch.tensor(tokenizer(sentence)["input_ids"])))


main(*sys.argv[1:])
