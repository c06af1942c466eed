"""What is known of labelled text before a model is trained on it: how many steps there are, and what cannot be learnt."""

from pathlib import Path

import pytest

from babelmill.commands.plan import plan
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.labels.data import DocumentRows, LabelledData
from babelmill.tokens.shard_file import ShardFile
from babelmill.training.plan.plan import Plan
from helpers.labelled_texts import COLUMNS, configuration_of, write_csv
from helpers.stages import read_settings, run_stage
from helpers.training.training_data import write_tokenizer

pytestmark = pytest.mark.usefixtures("folder")


def test_a_plan_has_the_steps_of_the_training():
    """Before there are shards and after, though the text has far fewer tokens than rows of full length."""
    write_csv("a.csv", [(f"word{20 + i % 60} word{30 + i % 47}", "word90", str(i % 7), "") for i in range(200)])
    values = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0], "epochs": 3}
    configuration = configuration_of(values | {"global_batch_tokens": 512}, files=["a.csv"], validation_share=0.2)

    def planned() -> tuple[str, int]:
        row, _ = plan(Graph(configuration), "eng", 1, "H100")
        return row["from"], row["steps"]

    assert planned()[0] == "files"
    graph = Graph(configuration)
    corpus, out = graph.result("corpus", "eng").path, graph.result("shards", "eng", "eng").path
    run_stage("corpus", configuration, out=corpus)
    from_corpus = planned()
    write_tokenizer(Path("tokenizer"))
    run_stage("shards", configuration, out=out, tokenizer=Path("tokenizer"), corpus=corpus)
    shard, model = ShardFile.open(out / "train.safetensors"), configuration.model("eng")
    layout = DocumentRows(shard, 32)
    steps = Plan(model.train, 1.0, [layout]).steps
    assert steps > 20 and (from_corpus, planned()) == (("corpus", steps), ("shards", steps))


@pytest.mark.parametrize(
    ("train", "validation", "labels", "words"),
    [
        (["61110"], ["61110"], {"code": "hisco", "codes": "codes.csv"}, r"has only one code, '61110': there is nothing to learn$"),
        (["1", "2"], ["3"], {}, r"^no validation text of eng has a code of its training text, so there is nothing to measure"),
    ],
)  # fmt: skip
def test_codes_that_cannot_be_learnt_or_measured_are_one_line_before_training(train, validation, labels, words):
    for split, codes in (("train", train), ("validation", validation)):
        write_csv(f"{split}.csv", [(f"word{30 + i} of {split}", "", codes[i % len(codes)], "") for i in range(20)])
    Path("codes.csv").write_text("code\n61110\n64100\n")
    columns = {"label_columns": "code1", "context_column": None}
    values = {"train": {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}, "labels": labels}
    corpus = {**COLUMNS, **columns, "files": ["train.csv"], "validation_files": ["validation.csv"]}
    configuration = Configuration([("test", values | {"languages": {"eng": {"corpus": corpus}}})])
    run_stage("corpus", configuration, out="corpus")
    write_tokenizer(Path("tokenizer"))
    run_stage("shards", configuration, out="shards", tokenizer=Path("tokenizer"), corpus=Path("corpus"))
    settings = read_settings("train", configuration)
    with pytest.raises(UserError, match=words):
        LabelledData(settings, Path("tokenizer"), [Path("shards")])


def test_a_model_of_labels_without_columns_is_refused_before_anything_runs():
    values = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}
    line = r"train\.objective = 'labels' of model eng: languages\.eng\.corpus\.label_columns is expected"
    with pytest.raises(UserError, match=f"^test: {line}$"):
        Graph(configuration_of(values, label_columns=[], context_column=None)).of_model("eng")
    Graph(configuration_of(values)).of_model("eng")
