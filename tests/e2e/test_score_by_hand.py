"""`babelmill score`: models from anywhere, scored by hand."""

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoTokenizer, BertForPreTraining

from babelmill.cli import main
from babelmill.commands.by_hand import is_done
from babelmill.commands.score import owners, words_of
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.runtime.run_lock import locked
from babelmill.stages import ScoreStage
from babelmill.suites.items import COLUMNS
from helpers.hub.hub_data import SENTENCES
from helpers.models.published_models import publish
from helpers.programs.prepared import run_module

pytestmark = pytest.mark.slow

MINE = "suites: {mine: {files: [pairs.tsv], language: eng, good: good, bad: bad}}\n"
SHORT = [" ".join(text.split()[:6]) for text in SENTENCES]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a suite of three pairs."""
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    Path("config/config.yaml").write_text(MINE)
    rows = [(text, " ".join(text.split()[::-1])) for text in SHORT]
    Path("pairs.tsv").write_text("good\tbad\n" + "".join(f"{good}\t{bad}\n" for good, bad in rows))
    return tmp_path


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
@pytest.mark.parametrize("left", [[], ["tokenizer_config.json"]])
def test_a_folder_without_a_tokenizer_is_refused(kind, left, capsys):
    """Transformers makes one that knows special tokens alone: all words would be [UNK], or nothing."""
    foreign(kind)
    for path in Path(kind).glob("*token*"):
        if path.name not in left:
            path.unlink()
    assert main(["score", kind, "--suite", "mine"]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"error: {kind}: it") and "tokenizer" in message and "bug" not in message


def foreign(kind: str) -> Path:
    """A folder as `save_pretrained` leaves it; that of BERT has another head, too."""
    folder = publish(kind, Path(kind))
    if kind == "bert":
        BertForPreTraining.from_pretrained(folder).save_pretrained(folder)
    return folder


@torch.inference_mode()
def plain(text: str) -> float:
    """ln p of a text by the BERT, by a loop; its tokenizer puts a token before it and one after it."""
    tokenizer, model, total = AutoTokenizer.from_pretrained("bert"), BertForPreTraining.from_pretrained("bert"), 0.0
    ids = torch.tensor(tokenizer(text)["input_ids"])
    model.eval()
    for place in range(1, len(ids) - 1):
        hidden = ids.clone()
        hidden[place] = tokenizer.mask_token_id
        total += model(hidden[None]).prediction_logits[0, place].log_softmax(-1)[ids[place]].item()
    return total


@pytest.mark.parametrize("kind, method", [("gpt2", "causal"), ("bert", "masked")])
def test_models_of_transformers(capsys, kind, method):
    assert main(["score", str(foreign(kind)), "--suite", "mine"]) == 0
    assert capsys.readouterr().out == f"scores/{kind}/mine\n"
    assert not Path("results/score").exists(), "it is the workflow's"
    rows = pq.read_table(f"scores/{kind}/mine/items.parquet").to_pylist()
    for row in rows if kind == "bert" else ():  # GPT-2: test_words_as_official.py, test_likelihood.py
        assert row[method] == pytest.approx([plain(text) for text in row["options"]], abs=1e-4)
    about = read_json(f"scores/{kind}/mine/scores.json")
    assert about["headline"]["method"] == method and about["languages"]["eng"]["pairs"]["pairs"] == 3
    assert set(rows[0]) - {"language", *(name for name, _ in COLUMNS)} == {method, f"{method}_points"}
    shutil.copytree(kind, "again")
    assert main(["score", "again", "--suite", "mine"]) == 0
    written = Path("scores/again/mine/scores.json").stat().st_mtime_ns
    assert main(["score", "again", "--suite", "mine"]) == 0
    assert Path("scores/again/mine/scores.json").stat().st_mtime_ns == written, "it is finished"
    assert main(["compare", f"scores/{kind}", "scores/again"]) == 0
    assert "McNemar, 0 : 0" in capsys.readouterr().out


def test_two_at_once_do_not_write_the_same_scores_and_a_sample_is_enough(capsys):
    command = ["score", str(foreign("gpt2")), "--suite", "mine", "--config", "evaluation={max_items: 2}"]
    with locked(Path("scores/gpt2/mine/partial")):
        assert main(command) == 1
    assert "error: scores/gpt2/mine/partial: another process that scores the same is writing" in capsys.readouterr().err
    assert main(command) == 0
    about = read_json("scores/gpt2/mine/scores.json")
    assert about["max_items"] == 2 and about["languages"]["eng"]["methods"]["causal"]["pairs"]["n"] == 2


def test_an_exported_folder_and_a_repository_of_the_hub(exported, hub):
    """A folder that this workflow has written is trusted; code from the Hub is not, unless one says so."""
    hub.commit("models/org/model", {p.name: p.read_bytes() for p in (exported / "export").iterdir()})
    shutil.copytree(exported / "export", "mine")
    for model, more in (("mine", []), ("org/model", ["--trust-remote-code"])):
        run_module("babelmill", "score", model, "--suite", "mine", *more, cwd=Path.cwd(), check=True)
    rows = [pq.read_table(f"scores/{name}/mine/items.parquet") for name in ("mine", "org--model")]
    assert rows[0].equals(rows[1]) and "fused" in rows[0].column_names
    words = ("score", "org/model", "--suite", "mine", "--trust-remote-code")
    elsewhere = os.environ | {"HF_HOME": f"{Path.cwd()}/else"}
    again = run_module("babelmill", *words, cwd=Path.cwd(), environment=elsewhere)
    assert "scores/org--model/mine is finished" in again.stderr, "the same model from another user's cache"
    done = run_module("babelmill", "score", "org/model", "--suite", "mine", cwd=Path.cwd())
    assert done.returncode == 1 and "contains Python code that would be run" in done.stderr
    (Path("mine") / "modeling_gpt_bert.py").write_text("raise SystemExit('run')")
    done = run_module("babelmill", "score", "mine", "--suite", "mine", cwd=Path.cwd())
    assert done.returncode == 1 and "mine/modeling_gpt_bert.py" in done.stderr and "run'" not in done.stderr


def test_the_scores_of_another_folder_are_not_written_over():
    out = Path("scores/eng/mine")

    def of(**origin) -> ScoreStage:
        return ScoreStage(methods=[], origin=origin, raw={"origin": origin})

    manifest.write(out, of(folder="converted/eng"), [])
    assert is_done(out, of(folder="converted/eng"))
    assert not is_done(out, of(folder="converted/eng", files={}))
    with pytest.raises(UserError, match="holds the scores of converted/eng"):
        is_done(out, of(folder="elsewhere/eng"))


@pytest.mark.parametrize(
    "words, expected",
    [
        (["t5", "--suite", "mine"], "names neither a causal nor a masked language model"),
        (["no_mask", "--suite", "mine"], "no_mask: method masked hides tokens"),
        (["gpt2", "--suite", "mime"], "there is no suite 'mime'; did you mean mine"),
        (["gpt2", "--suite", "multiblimp"], "has several languages: add --language"),
        (["gpt2", "--suite", "mine", "--language", "deu"], "the suite mine has no pairs of deu"),
        (["config", "--suite", "mine"], "config: has no config.json"),
        (["config/gpt2", "--suite", "mine"], "config/gpt2: no such folder"),
        (["eng", "--suite", "mine"], "converted/eng: no such folder; is the model finished?"),
        (["gpt2", "--words", "text.txt", "--method", "masked"], "takes method causal or masked; gpt2 has causal"),
        (["gpt2", "--words", "text.txt", "--language", "eng"], "are for suites"),
    ],
)
def test_what_cannot_be_scored_is_refused(capsys, words, expected):
    Path("text.txt").write_text("a dog\n")
    if words[0] in ("gpt2", "t5"):
        config = read_json(foreign("gpt2") / "config.json")
        shutil.copytree("gpt2", "t5")
        other = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}
        write_json("t5/config.json", config | other)
    elif words[0] == "no_mask":
        foreign("bert").rename("no_mask")
        other = {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": None}
        for name, values in {"tokenizer_config.json": other, "config.json": {"mask_token_id": None}}.items():
            write_json(f"no_mask/{name}", read_json(f"no_mask/{name}") | values)
    assert main(["score", *words]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and expected in error, error


def test_all_commands_by_hand_name_models_alike(hub, capsys):
    """A folder, the name of a converted model, and the name of an unfinished one, which is not looked for elsewhere."""
    shutil.move(foreign("gpt2"), "converted/small_one")
    Path("text.txt").write_text("a dog\n")
    Path("more.yaml").write_text("models: {other_one: {languages: [eng]}}\n")
    words = ("score", "--words", "text.txt")
    of_any = [("score", "--suite", "mine"), ("tune", "--task", "rte")]
    of_ours = [("show",), ("predict", "text.txt", "--text", "a", "--out", "o.csv")]
    for command, *options in (*of_any, words, *of_ours):
        main([command, "small_one", *options])
        said = capsys.readouterr().err
        assert "small_one: no such" not in said and "huggingface" not in said, said
        assert main([command, "converted/smal_one", *options]) == 1
        assert "small_one" in capsys.readouterr().err.splitlines()[-1]
    for command, *options in of_any:
        assert main([command, "other_one", *options, "--configfile", "more.yaml"]) == 1
        assert "converted/other_one: no such folder; is the model finished?" in capsys.readouterr().err
    Path("config/config.yaml").write_text("no_such_key: 1\n")
    assert main(["score", "small_one", *words[1:]]) == 0, "words need no configuration"
    of_hub = run_module("babelmill", "score", "smal_one", *words[1:], cwd=Path.cwd())
    assert of_hub.returncode == 1 and of_hub.stderr.endswith("; did you mean small_one?\n"), of_hub.stderr


def test_bits_of_words_add_up_to_the_score_of_the_sentence(exported, capsys):
    texts = [SENTENCES[0], "", "  The  black catapult, sat 日本 é", SENTENCES[2]]
    Path("text.txt").write_text("\n".join(texts))
    Path("pairs.tsv").write_text("good\tbad\n" + "".join(f"{text}\t{text}\n" for text in texts if text))
    shutil.copytree(exported / "export", "model")
    assert main(["score", "model", "--suite", "mine"]) == 0
    scored = pq.read_table("scores/model/mine/items.parquet")
    for method in ("causal", "masked"):
        capsys.readouterr()
        assert main(["score", "model", "--words", "text.txt", "--method", method]) == 0
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert lines[0] == ["line", "number", "word", "bits", "tokens"]
        for number, (nats, _) in zip((1, 3, 4), scored[method].to_pylist(), strict=True):
            mine = [line for line in lines[1:] if line[0] == str(number)]
            assert [line[2] for line in mine] == texts[number - 1].split()
            assert sum(float(line[3]) for line in mine) == pytest.approx(-nats / 0.6931471805599453, abs=1e-3)
            assert all(int(line[4]) > 0 and float(line[3]) > 0 for line in mine)


def test_a_token_is_of_the_word_that_it_begins_in():
    text = " ab  cd e "
    assert words_of(text) == [(1, 3), (5, 7), (8, 9)]
    assert owners(text, [(0, 2), (2, 3), (3, 4), (4, 7), (7, 9), (9, 10)]) == [0, 0, 1, 1, 2, 2]
