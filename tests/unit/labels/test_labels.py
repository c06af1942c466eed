"""Codes of labelled text: how they are written and spelt, and the loss that does not depend on their order."""

import itertools
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.labels.codes import BEGIN, END, FIRST, CodeReader, Codes, listed
from babelmill.labels.network import block_losses
from babelmill.model.code_decoder import CodeDecoder
from babelmill.model.transformers.modeling_codes import CodesModel
from babelmill.tokens.shard_file import ShardFile
from helpers import DATA
from helpers.stages import run_stage, write_corpus
from helpers.training.training_data import section, write_tokenizer

GOLDEN = DATA / "block_loss.safetensors"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    """Losses and gradients of the published code; see `tests/data/README.md`."""
    return load_file(GOLDEN)


def losses_of(logits: torch.Tensor, sequence: torch.Tensor, count: int, push: int) -> torch.Tensor:
    """The loss of each row as published: the mean over its codes, and what pushes the rest to be empty."""
    blocks = sequence[:, 1:-1].view(len(sequence), count, -1)
    of_codes, of_empty = block_losses(logits[:, :-1], blocks)
    return of_codes.sum(1) / (of_codes > 0).sum(1) + push * of_empty


@pytest.mark.parametrize("push", [0, 1])
@pytest.mark.parametrize(("count", "size"), [(2, 3), (5, 5), (5, 8)])
def test_the_loss_is_that_of_the_published_code(golden, count, size, push):
    name = f"{count}x{size}"
    logits = golden[f"{name}.logits"].requires_grad_()
    found = losses_of(logits, golden[f"{name}.sequence"], count, push)
    torch.testing.assert_close(found, golden[f"{name}.push{push}.row_losses"], atol=1e-9, rtol=0)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    torch.testing.assert_close(gradient, golden[f"{name}.push{push}.grad_of_sum"], atol=1e-9, rtol=0)


def test_codes_are_spelt_with_the_published_ids():
    codes = Codes(["-1", "01234", "61110"], "hisco", 0)
    assert codes.entries == 18 and codes.index["61110"] == 2
    assert codes.blocks.tolist() == [[7] * 5, [8, 9, 10, 11, 12], [14, 9, 9, 9, 8]]
    general = Codes(["A1", "B"], "general", 3)
    assert general.symbols == ("1", "A", "B")
    assert general.blocks.tolist() == [[FIRST + 1, FIRST, END], [FIRST + 2, END, END]]
    assert Codes(["mill", "farm"], "classes", 0).blocks.shape == (2, 0)


def test_how_many_of_the_likeliest_are_asked_for_changes_none_of_them():
    """One that is asked for alone is the first of five: the beam is no narrower."""
    names = [f"{i * 37:05}" for i in range(200)]
    codes = Codes(names, "hisco", 5)
    labels = {"code": "hisco", "codes": names, "blocks": 2, "block_size": 5, "entries": codes.entries}
    labels |= {"spelt": codes.blocks.tolist(), "decoder_layers": 1, "exclusive": False}
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model("bert", **sizes, intermediate_size=32, num_labels=len(names))
    config.labels = labels
    torch.manual_seed(0)
    model, ids = CodesModel(config).eval(), torch.randint(5, 64, (30, 6))
    five = model.predict(ids, torch.ones_like(ids), top=5)
    assert {len(found.codes) for found in five} >= {2} and {len(found.likeliest) for found in five} == {5}
    for top in (1, 3):
        fewer = model.predict(ids, torch.ones_like(ids), top=top)
        assert fewer == [found._replace(likeliest=found.likeliest[:top]) for found in five]


# From tables to shards.

ROWS = [
    ("en", "farmer and fisher", ["61110", "64100"]),
    ("en", "farmer", ["61110", None]),
    ("", "no trade", ["-1", None]),
    ("da", "smed", [None, "8300"]),
]


def read(rows, **values) -> list[list[str]]:
    """The codes of rows of columns."""
    reader = CodeReader(section("labels", **values))
    found = reader.read((columns, f"a.csv: line {i}") for i, columns in enumerate(rows, 2))
    return [[found.names[i] for i in found.codes[a:b]] for a, b in itertools.pairwise(found.offsets)]


CODES = "code,name\n61110,Farmer\nNA,Namibia\n250,x\n250.0,y\n"


@pytest.mark.parametrize(
    ("cells", "codes", "labels"),
    [
        ([["61110", "61110"], ["1234.0", None], ["-1", "64100"]], [["61110"], ["01234"], ["-1", "64100"]], {"code": "hisco"}),
        ([["7"], ["123"]], [["007"], ["123"]], {"code": "occ1950"}),
        ([["1234"], ["?"]], [["1234"], ["?"]], {"code": "general", "block_size": 4}),  # here, a zero may mean something
        ([["61110"], ["61110.0"]], [["61110"]] * 2, {"code": "hisco"}),
        ([["250.0"], ["250.0"]], [["250"]] * 2, {"code": "general"}),  # pandas writes all codes so
        ([["a; b ;;c", "d"], [None, None], [" ", ""]], [["a", "b", "c", "d"], ["?"], ["?"]], {"separator": ";"}),
        ([["1;nan; NULL;2.0;\ufeff3"]], [["1", "2", "3"]], {"code": "general", "separator": ";"}),
        ([[None, "mill"], ["250.0"], ["250"], ["E11.0"]], [["mill"], ["250.0"], ["250"], ["E11.0"]], {}),
        ([["NA"], ["nan"], ["NaN"], ["null"], ["NULL"], ["N"]], [["?"]] * 5 + [["N"]], {}),
        ([["A1"], ["\u200bA1"], ["A1\ufeff"], [" \u200e A1 \u200b "], ["\u200b"]], [["A1"]] * 4 + [["?"]], {}),
        *(
            ([["NA"], ["null"], ["250.0"], ["250"]], [["NA"], ["?"], ["250.0"], ["250"]], more | {"codes": "codes.csv"})
            for more in ({}, {"code": "general", "block_size": 9})
        ),
    ],
)  # fmt: skip
def test_columns_of_labels_become_codes(folder, cells, codes, labels):
    """What a list of codes has is a code, whatever it looks like."""
    Path("codes.csv").write_text(CODES)
    assert read(cells, **labels) == codes


@pytest.mark.parametrize(
    ("cells", "labels", "message"),
    [
        (["61110", "farmer"], {"code": "hisco"}, r"a\.csv: line 3: 'farmer' is not a code of hisco: it contains a, e, f, m, r; correct it, or delete"),
        (["61110", "?"], {"code": "hisco"}, r"a\.csv: line 3: '\?' is not a code of hisco: it contains \?"),
        (["123456"], {"code": "hisco"}, r"a\.csv: line 2: '123456' is longer than 5 symbols \(labels\.block_size\)"),
        (["250", "250", "250.0"], {"code": "general"}, r"a\.csv: line 4: '250\.0' and '250' would be one code; write it in one way"),
        (["1", None], {"code": "occ1950"}, r"a\.csv: line 3: has no code, and occ1950 has no code that means 'none'; delete such rows"),
        (["61110", "64100"], {"codes": "codes.csv"}, r"a\.csv: line 3: '64100' is not in codes\.csv \(labels\.codes\); correct it"),
        (["long\x1b\n" * 100_000], {"code": "general"}, r"a\.csv: line 2: 'long.*is longer than 5 symbols"),
        (["long\x1b\n" * 100_000], {"codes": "codes.csv"}, r"a\.csv: line 2: 'long.*is not in codes"),
    ],
)  # fmt: skip
def test_what_is_no_code_is_one_short_line(folder, cells, labels, message):
    Path("codes.csv").write_text(CODES)
    with pytest.raises(UserError, match=f"^{message}") as error:
        read([[cell] for cell in cells], **labels)
    assert len(str(error.value)) < 500 and str(error.value).isprintable()


def test_a_list_of_codes_is_all_there_are(folder):
    content = '\ufeffcode,name\r\n61110,"Farmer, tenant"\r\n\r\n1234,\r\n-1\u200b,No trade\r\n'
    Path("codes.csv").write_text(content, encoding="utf-8", newline="")
    labels = section("labels", code="hisco", codes="codes.csv")
    assert listed("codes.csv", labels) == {"61110": "Farmer, tenant", "01234": "", "-1": "No trade"}
    found = CodeReader(labels).read([(["61110"], "a")])
    assert found.names == ("-1", "01234", "61110") and found.codes.tolist() == [2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("code,name\n", "at least one code is expected"),
        ("61110,Farmer\n", r"no column 'code'; there are '61110', 'Farmer'; set labels\.codes to a table with the col"),
        ('"","code","name"\n"1","abc","farm"\n', "line 2: 'abc' is not a code of hisco: it contains a, b, c; correct"),
        ("code,name\n,mill\n", "line 2: has no code"),
        ("code\n1234\n01234\n", "line 3: the code '01234' is there already; keep one of them"),
    ],
)
def test_what_is_no_list_of_codes_is_refused_with_its_line(folder, content, message):
    Path("codes.csv").write_text(content, newline="")
    with pytest.raises(UserError, match=message):
        listed("codes.csv", section("labels", code="hisco"))


def test_shards_of_labelled_text(tmp_path):
    """The stage itself: contexts and codes of each document, and what the shards depend on."""
    write_tokenizer(tmp_path / "tokenizer")
    contexts, texts, labels = map(list, zip(*ROWS, strict=True))
    origins = [f"a.csv: line {i}" for i in range(len(ROWS))]
    columns = {"text": texts, "context": contexts, "labels": labels, "origin": origins}
    inputs = {"tokenizer": tmp_path / "tokenizer", "corpus": write_corpus(tmp_path / "corpus", columns, columns)}
    train = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}
    configuration = Configuration([("test", {"train": train, "labels": {"code": "hisco"}})])
    figures = run_stage("shards", configuration, out=tmp_path / "out", **inputs)
    shard = ShardFile.open(tmp_path / "out/train.safetensors")
    assert shard.labels and shard.labels.names == ("61110", "64100", "-1", "08300")
    assert shard.labels.codes.tolist() == [0, 1, 0, 2, 3] and shard.labels.offsets.tolist() == [0, 2, 3, 4, 5]
    assert (shard.responses - shard.offsets[:-1] - 1).tolist() == [1, 1, 0, 1], "tokens of the context"
    assert [shard.texts[i] for i in range(4)] == [text for _, text, _ in ROWS]
    assert figures["codes"] == {"train": 5, "validation": 5}


def test_a_symbol_at_a_time_scores_as_all_at_once():
    """Beams of a row have symbols of their own before them."""
    torch.manual_seed(0)
    decoder = CodeDecoder(18, 24, layers=2, longest=26).double().eval()
    hidden, seen = torch.randn(3, 7, 24).double(), torch.arange(7) < torch.tensor([[7], [4], [1]])
    symbols = torch.randint(FIRST, 18, (3, 2, 6))  # [rows, beams, symbols]
    symbols[:, :, 0] = BEGIN
    whole = torch.stack([decoder(hidden, seen, symbols[:, beam]) for beam in range(2)], 1)
    text, before = decoder.read(hidden), [each.expand(-1, 2, -1, -1) for each in decoder.nothing(hidden)]
    for place in range(6):
        scores, before = decoder.advance(text, seen, symbols[:, :, place], before)
        torch.testing.assert_close(scores, whole[:, :, place], atol=1e-12, rtol=0)
