"""Training on labels: rows and their codes, typos, and what the loss is made of."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig

from babelmill.labels.codes import Codes
from babelmill.labels.data import MOST, DocumentRows, Frame, LabelStream, disturbed, in_terms_of, letter_of
from babelmill.labels.network import Labeller, LabelsNetwork, WithLabelLoss, block_losses, make_encoder
from babelmill.runtime.processes import Processes
from babelmill.tokens.shard_file import ShardFile, Texts
from babelmill.tokens.tokenizer_file import encode, load_tokenizer
from babelmill.training.networks.transformers_models import CLASSIFIER, make_config
from babelmill.training.plan import randomness
from babelmill.training.plan import rows as dealing
from babelmill.training.plan.plan import Plan, every_row
from helpers.training.training_data import TRADES, VOCABULARY, section, write_labelled, write_tokenizer

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
FRAME = Frame(((1,), ()), ((1,), (1,), ()), VOCABULARY.pad)
LENGTH = 16
TRAIN = {"objective": "labels", "sequence_lengths": [LENGTH], "phase_starts": [0.0], "max_steps": 150}
TRAIN |= {"global_batch_tokens": 32 * LENGTH, "batch_reduction": 1}
BERT = {"model_type": "bert", "hidden_dropout_prob": 0, "hidden_size": 32, "num_hidden_layers": 2}
BERT |= {"num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    return write_labelled(tmp_path_factory.mktemp("labels") / "train.safetensors", 200, 1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typos") / "tokenizer"
    write_tokenizer(folder)
    return load_tokenizer(folder / "tokenizer.json")


@pytest.fixture(scope="module")
def rows(shard):
    layout = DocumentRows(shard, LENGTH)
    return every_row([layout], LENGTH, Plan(section("train"), 1.0, [layout]).objective, 1)


@pytest.fixture
def stream(shard, tokenizer):
    """A function that makes a stream of the shard."""

    def stream(code: str = "general", seed: int = 7, **shares: float) -> LabelStream:
        codes = Codes(sorted(TRADES), code, 7)
        return LabelStream([in_terms_of(shard, codes, 2)], FRAME, codes, 2, tokenizer, seed, CPU, **shares)

    return stream


def trades(shard: ShardFile, document: int) -> list[str]:
    """The codes of a document."""
    labels = shard.labels
    return [labels.names[code] for code in labels.codes[slice(*labels.offsets[document : document + 2])]]


def test_rows_are_framed_as_the_tokenizer_does_it_and_cut_at_the_end(shard, rows, stream):
    long = Frame(((1,), (2,)), ((1,), (2,), (2,)), 3)
    context, text = np.array([90]), np.arange(20, 40)
    assert long.row(context, text, 8).tolist() == [1, 90, 2, 20, 21, 22, 23, 2]
    assert long.row(context[:0], text[:2], 8).tolist() == [1, 20, 21, 2]
    assert len(long.row(np.arange(90, 120), text, 8)) == 8
    for frame in (long, FRAME):
        for n, m in itertools.product(range(7), repeat=2):
            context, text, found = np.arange(n), np.arange(10, 10 + m), frame.cut(np.array([n]), np.array([m]), 9)
            whole = set(context) | set(text) <= set(frame.row(context, text, 9))
            assert found.tolist() == [not whole], (n, m)
    batch, codes = stream().micro_batch(rows, LENGTH, (0, 0, 0)), stream().codes
    assert batch.input_ids.shape == batch.seen.shape and batch.input_ids.size(1) <= LENGTH
    for i in range(200):
        tokens = shard.tokens[shard.offsets[i] + 1 : shard.offsets[i + 1] - 1].tolist()
        context = tokens[: shard.responses[i] - shard.offsets[i] - 1]
        wanted = [1, *context, 1, *tokens[len(context) :]] if context else [1, *tokens]
        assert batch.input_ids[i][batch.seen[i]].tolist() == wanted
        mine = trades(shard, i)
        assert sorted(codes.names[k] for k in batch.classes[i].nonzero()[:, 0]) == sorted(mine)
        spelt = ["".join(codes.symbols[s - 5] for s in block if s >= 5) for block in batch.blocks[i].tolist()]
        assert spelt == mine + [""] * (2 - len(mine))


def test_contexts_are_hidden_in_a_share_of_the_rows_and_never_in_validation(rows, stream):
    def contexts(share: float, number: int = 0) -> int:
        batch = stream("classes", unknown_context=share).micro_batch(rows, LENGTH, (0, 0, 0), number)
        return int(((batch.input_ids >= 90) & (batch.input_ids < 93)).sum())

    every = contexts(0)
    assert contexts(1) == 0 and 0.3 * every < contexts(0.5) < 0.7 * every
    assert contexts(1, number=9) == every


def test_a_share_of_the_texts_is_disturbed_by_row_and_never_a_context(shard, rows, stream, tokenizer):
    def ids(share: float, rows=rows, number: int = 0, seed: int = 7) -> list[list[int]]:
        batch = stream("classes", seed, typos=share).micro_batch(rows, LENGTH, (0, 0, 0), number)
        return [row[seen].tolist() for row, seen in zip(batch.input_ids, batch.seen, strict=True)]

    def differ(these, those) -> float:
        return np.mean([one != other for one, other in zip(these, those, strict=True)])

    before, half = ids(0.0), ids(0.5)
    assert ids(1.0, number=9) == before, "none in validation"
    assert 0.35 < differ(half, before) < 0.65 and differ(ids(1.0), before) > 0.9
    contexts = [[row[1 : row.index(1, 1)] for row in each if 1 in row[1:]] for each in (before, ids(1.0))]
    assert contexts[0] == contexts[1] and len(contexts[0]) > 50
    parts = [ids(0.5, rows[i::3]) for i in range(3)]
    assert [parts[i % 3][i // 3] for i in range(200)] == half, "whoever builds a row, and with which others"
    tokens, _ = encode(tokenizer, [shard.texts[i] for i in range(200)])
    bounds = zip(shard.responses, shard.offsets[1:] - 1, strict=True)
    assert tokens.tolist() == [token for begin, end in bounds for token in shard.tokens[begin:end].tolist()]
    later = replace(rows, number=rows.number + 200)
    assert differ(ids(0.5, later), half) > 0.3 < differ(ids(0.5, seed=8), half), "other ones in the next epoch"


def texts_of(*texts: str) -> Texts:
    each = [text.encode() for text in texts]
    return Texts(np.frombuffer(b"".join(each), np.uint8), np.cumsum([0, *map(len, each)]))


def test_typos_are_characters_left_out_put_in_replaced_and_swapped():
    text = "gårdmand"
    seen: dict[int, set[tuple[int, int]]] = {changes: set() for changes in range(MOST)}
    for i in range(600):
        key = randomness.key(3, i)
        found = disturbed(text, key, texts_of("xyz"))
        taken, new = Counter(text) - Counter(found), Counter(found) - Counter(text)
        assert set(new) <= set("xyz") and found
        if found != text:
            seen[randomness.below(randomness.draw(key, 0), MOST)].add((taken.total(), new.total()))
    assert seen[0] == {(1, 0), (0, 1), (1, 1), (0, 0)}, "one change of each kind"
    assert {(2, 0), (0, 2), (2, 2)} < seen[1] and {(3, 0), (0, 3), (3, 3)} < seen[2]
    assert max(max(pair) for pairs in seen.values() for pair in pairs) == 3
    assert {disturbed("a", randomness.key(i), texts_of("b")) for i in range(99)} >= {"a", "b", "ab", "ba"}
    drawn = [letter_of(texts_of("åß", "水a"), number) for number in range(0, 2**32, 2**22)]
    assert Counter(drawn) == {"å": 256, "ß": 256, "水": 384, "a": 128}


def test_codes_that_are_not_known_are_left_out(shard):
    found = in_terms_of(shard, Codes(["farmer", "miller"], "general", 6), 1)
    for i in range(200):
        assert trades(found, i) == [name for name in trades(shard, i) if name in ("farmer", "miller")][:1]


@pytest.mark.parametrize("code", ["classes", "general"])
def test_the_loss_is_what_its_parts_say_whatever_the_forward_passes(code, shard, stream):
    """Its gradient is summed over several passes; codes weigh alike, rows weigh alike.

    Rows without targets, which fill up the passes of a process that has fewer than the others, add nothing.
    """
    train, model = section("train", **TRAIN), section("model", architecture="transformers", config=BERT)
    labels = section("labels", code=code, block_size=7, decoder_layers=1)
    made, config = stream(code), make_config(model, CLASSIFIER, VOCABULARY)
    plan = Plan(train, 1.0, [DocumentRows(shard, LENGTH)], labels.blocks_weight if code == "general" else 0.0)
    network = LabelsNetwork(config, train, labels, made.codes, 2, Processes(0, 1, 1, CPU))
    network.model.eval()
    encoder = make_encoder(BertConfig.from_dict(network.config["config"] | {"num_labels": len(TRADES)}))
    whole = Labeller(encoder, network.config["labels"]).eval()
    whole.load_state_dict(network.weights())
    step = plan.step(5)
    batch = made.micro_batch(step.rows, LENGTH, step.weights)
    scores, symbols = whole(batch.input_ids, batch.seen, batch.blocks)
    wanted = F.binary_cross_entropy_with_logits(scores, batch.classes)
    if code == "general":
        spelt, empty = block_losses(symbols, batch.blocks)
        wanted = 0.5 * wanted + 0.5 * spelt.sum() / batch.classes.sum() + 0.5 * empty.mean()
    _, none = dealing.whole_rounds([step.rows[:3]], 2)
    total = 0.0
    for part in (step.rows[:10], none, step.rows[10:]):
        loss, sums = network.forward(made.micro_batch(part, LENGTH, step.weights), plan.groups)
        assert part is not none or (loss == 0 and not sums.any())
        total += loss.item()
    assert total == pytest.approx(wanted.item(), rel=1e-5) and not plan.group_counts(none).any()


def test_the_loss_of_one_code_a_text_is_its_cross_entropy():
    scores, codes = torch.randn(5, 4), torch.tensor([0, 3, 2, 1, 3])
    found = WithLabelLoss(torch.nn.Identity(), True)._classes(scores, F.one_hot(codes, 4).float())
    torch.testing.assert_close(found, F.cross_entropy(scores, codes, reduction="none"))
