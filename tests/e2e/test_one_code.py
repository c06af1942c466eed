"""Plain classification from the corpus to the converted folder: a text has one code, which is a class, or none."""

import re
from typing import ClassVar

import pytest
import transformers
from test_evaluate_labels import Labelled

from babelmill.core.files import read_json
from helpers.training.training_data import TRADES

pytestmark = pytest.mark.slow


class OneCode(Labelled):
    """A text has one code, which is a class, or none: plain classification, with nothing else set."""

    STEPS, RATE = 700, 3e-3  # with fewer, some orders of the rows do not suffice
    LABELS: ClassVar = {"code": "classes"}

    def rows(self, split: str, language: str, seed: int) -> list[dict]:
        """The rows with one trade, farmers thrice; some texts have none."""
        rows = [row for row in super().rows(split, "", seed) if row["labels"][1] is None]
        rows += [row | {"text": f"{row['text']} word59"} for row in rows if row["labels"][0] == "farmer"] * 2
        idle = [{"text": f"word{60 + i % 30} word{61 + i % 25}", "labels": [None]} for i in range(len(rows) // 7)]
        return [row | {"labels": row["labels"][:1]} for row in rows] + [rows[0] | row for row in idle]


@pytest.fixture(scope="module")
def one_code(tmp_path_factory) -> OneCode:
    data = OneCode(tmp_path_factory.mktemp("one"), ["eng"])
    data.all()
    return data


def test_a_model_of_one_code_a_text_is_a_plain_classifier(one_code, capsys):
    folder = one_code.folder / "converted/test"
    config, trades = read_json(folder / "config.json"), ["?", *sorted(TRADES)]
    assert config["problem_type"] == "single_label_classification" and [*config["id2label"].values()] == trades
    assert config["labels"]["exclusive"] and not config["labels"]["decoder_layers"]
    assert not list(folder.glob("decoder*"))
    classifier = transformers.pipeline("text-classification", str(folder), top_k=None)
    model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    for text, wanted in (("word16 word70", "farmer"), ("word31 word60", "miller"), ("word75 word62", "?")):
        scores = {each["label"]: each["score"] for each in classifier([text])[0]}
        assert max(scores, key=scores.get) == wanted and sum(scores.values()) == pytest.approx(1)
        given = classifier.tokenizer(text, return_tensors="pt")
        (found,) = model.predict(given["input_ids"], given["attention_mask"], top=3)
        assert [code for code, _ in found.codes] == [wanted] and len(found.likeliest) == 3
        assert dict(found.likeliest) == pytest.approx({code: scores[code] for code, _ in found.likeliest})
    card = (folder / "README.md").read_text()
    assert "exactly one of 7 classes" in " ".join(card.split()) and "the decoder" not in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        exec(block.replace('"test"', repr(str(folder))), {})
    assert "codes: [('" in capsys.readouterr().out
    found = read_json(one_code.folder / "evaluation/evaluation.json")
    frequent, own = found["most_frequent"]["exact"], found["labels"]["figures"]["ema"]["linear"]
    truth = [row["labels"][0] for row in one_code.rows("validation", "eng", len("validation"))]
    assert frequent["right"] == truth.count("farmer")
    assert own["exact"] == own["micro"]["f1"] == own["micro"]["precision"] > 0.8 > frequent["value"]
