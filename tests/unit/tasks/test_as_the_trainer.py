"""The protocol of the multilingual track is transformers' Trainer with its defaults: the same rows, the same numbers."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from babelmill.config.entries import Tuning
from babelmill.config.layers import PROTOCOLS
from babelmill.core.yaml_file import read_yaml
from babelmill.tasks.encoding import Padding, Row, targets
from babelmill.tasks.tuner import Tuner, set_seed
from helpers import ROOT
from unit.tasks.test_tuner import encoded, judge_of

pytestmark = pytest.mark.slow

SEED, LENGTH = 12, 16


class Classifier(torch.nn.Module):
    """A small BERT; dropout is in it, so the random numbers of both must be the same, too."""

    def __init__(self, dropout: float):
        super().__init__()
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        of_dropout = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        config = BertConfig(vocab_size=40, max_position_embeddings=LENGTH, num_labels=3, **sizes, **of_dropout)
        self.encoder = BertForSequenceClassification(config)

    def forward(self, input_ids, attention_mask):
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).logits


def rows(count: int, seed: int) -> list[Row]:
    random = np.random.default_rng(seed)
    ids = [random.integers(1, 40, size=random.integers(3, LENGTH)).tolist() for _ in range(count)]
    return encoded(ids, [sum(row) % 3 for row in ids])


def as_dataset(found: list[Row]) -> list[dict]:
    return [
        {
            "input_ids": ids + [0] * (LENGTH - len(ids)),
            "attention_mask": [1] * len(ids) + [0] * (LENGTH - len(ids)),
            "labels": int(label),
        }
        for ids, label in zip((row.tokens["input_ids"] for row in found), targets(found), strict=True)
    ]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_same_logits(tmp_path, dropout):
    """With dropout, too: the random numbers of both are drawn at the same moments."""
    given = read_yaml(ROOT / PROTOCOLS / "babylm_multilingual.yaml") | {"epochs": 3, "longest": LENGTH, "batch": 16}
    how = Tuning.model_validate(given)
    train, test = rows(70, 1), rows(24, 2)
    set_seed(SEED)
    model, padding, cpu = Classifier(dropout), Padding(0, False, LENGTH), torch.device("cpu")
    tuner = Tuner(model, how, SEED, train, judge_of(test), padding, tmp_path / "ours", cpu)
    set_seed(SEED)
    orders = [tuner._next_order(epoch) for epoch in range(3)]
    set_seed(SEED)
    tuner.run()
    ours = tuner.predict(test)
    set_seed(SEED)
    model = Classifier(dropout)
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "theirs"),
        per_device_train_batch_size=how.batch,
        learning_rate=how.learning_rate,
        num_train_epochs=how.epochs,
        seed=SEED,
        eval_strategy="epoch",
        save_strategy="no",
        dataloader_drop_last=True,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    seen: list[list[int]] = []

    def collate(batch: list[dict]) -> dict[str, torch.Tensor]:
        seen.append([row["labels"] for row in batch])
        return {key: torch.tensor([row[key] for row in batch]) for key in batch[0]}

    trainer = Trainer(
        model=model.encoder,
        args=arguments,
        train_dataset=as_dataset(train),
        eval_dataset=as_dataset(test),
        data_collator=collate,
    )
    trainer.train()
    batches = [order[place : place + 16] for order in orders for place in (0, 16, 32, 48)]
    trained = [batch for batch in seen if len(batch) == 16]
    assert trained == [targets(train)[batch].tolist() for batch in batches]
    theirs = trainer.predict(as_dataset(test)).predictions
    assert np.allclose(ours, theirs, atol=1e-6)
