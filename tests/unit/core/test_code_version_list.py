"""The list of code versions: what a settings file says, and that the present code is in it."""

import argparse
import json
import re
from pathlib import Path

import pytest

from babelmill.commands import accept
from babelmill.core import code_versions
from babelmill.core.files import UserError
from babelmill.stages import STAGES
from conftest import ROOT

A, B, C, D = (letter * 16 for letter in "abcd")


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """Write a list in place of the package's."""

    def write(*lines: str) -> Path:
        path = tmp_path / "code_versions.txt"
        path.write_text("".join(f"{line}\n" for line in ("# a comment", *lines)))
        monkeypatch.setattr(code_versions, "PATH", path)
        code_versions.read.cache_clear()
        return path

    yield write
    code_versions.read.cache_clear()


def labels_of(stage, digest, lookup):
    """What the settings file of a stage with this code may say."""
    return [version.label for version in code_versions.fitting(stage, digest, lookup)] or [digest]


def lookup(**values):
    return lambda key: values.get(key.replace(".", "_"), code_versions.UNKNOWN)


@pytest.mark.parametrize("stage", STAGES)
def test_the_present_code_is_known(stage):
    known = [digest for version in code_versions.read().get(stage, []) for digest in version.digests]
    assert set(STAGES[stage].digests) <= set(known), (
        f"the code of {stage} was edited: see CONTRIBUTING.md, After an edit"
    )


def test_users_can_read_what_each_version_changed():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in (v for versions in code_versions.read().values() for v in versions if v.number > 1):
        assert re.search(rf"Results: {re.escape(version.label)}: \w", changelog), version.label


def test_a_digest_in_the_list_is_its_version_and_another_is_itself(versions):
    versions(f"train 1 aaaaaaaa {A} began", f"train 1 aaaaaaaa {B} 0.2.0", f"train 2 cccccccc {C} began")
    assert labels_of("train", A, lookup()) == ["train 1 (aaaaaaaa)"]
    assert labels_of("train", B, lookup()) == ["train 1 (aaaaaaaa)"]
    assert labels_of("train", C, lookup()) == ["train 2 (cccccccc)"]
    assert labels_of("train", D, lookup()) == [D]
    assert labels_of("export", A, lookup()) == [A]


def test_a_limited_version_holds_for_the_settings_that_it_names(versions):
    versions(f"train 1 aaaaaaaa {A} began", f'train 2 bbbbbbbb {B} began when {{"train.objective": ["causal"]}}')
    versions_of = {"causal": ["train 2 (bbbbbbbb)"], "hybrid": ["train 1 (aaaaaaaa)"]}
    for objective, label in versions_of.items():
        assert labels_of("train", B, lookup(train_objective=objective)) == label
        assert labels_of("train", A, lookup(train_objective=objective)) == ["train 1 (aaaaaaaa)"]
    # A settings file that does not say may have been written for either.
    assert labels_of("train", B, lookup()) == ["train 2 (bbbbbbbb)", "train 1 (aaaaaaaa)"]


def test_a_version_does_not_hold_for_settings_that_it_leaves_out(versions):
    """They have all of these values. One more limit holds beside it."""
    path = versions(f"train 1 aaaaaaaa {A} began")
    unless = {"model.source": [None], "tokenizer.source": [None]}
    new = code_versions.begin("train", [B], {"model.architecture": ["transformers"]}, unless)
    assert path.read_text().endswith(
        f"{json.dumps({'model.architecture': ['transformers']})} unless {json.dumps(unless)}\n"
    )
    assert code_versions.read()["train"][1] == new

    def of(**values):
        return labels_of("train", B, lookup(**values))

    both, old = ["train 2 (bbbbbbbb)", "train 1 (aaaaaaaa)"], ["train 1 (aaaaaaaa)"]
    theirs = {"model_architecture": "transformers"}
    assert of(**theirs, model_source=None, tokenizer_source=None) == old
    assert of(**theirs, model_source="owner/name", tokenizer_source=None) == both[:1]
    assert of(**theirs, model_source=None, tokenizer_source="owner/name") == both[:1]
    assert of(model_architecture="gpt_bert", model_source="owner/name") == old
    assert of(**theirs, model_source=None) == both, "settings that do not say may have been written for either"
    assert of(**theirs, model_source="owner/name") == both[:1]


def test_two_forks_may_have_a_version_of_one_number_and_agree_on_the_next(versions):
    path = versions(f"train 1 aaaaaaaa {A} began", f"train 2 bbbbbbbb {B} began", f"train 2 cccccccc {C} began")
    assert labels_of("train", B, lookup()) != labels_of("train", C, lookup())
    with pytest.raises(
        UserError, match=r"with the same number: train 2 \(bbbbbbbb\) and train 2 \(cccccccc\); begin the next version"
    ):
        code_versions.add("train", D)
    assert code_versions.begin("train", [D], {}).label == "train 3 (dddddddd)"
    assert path.read_text().endswith(f"train 3 dddddddd {D} began\n")


def test_an_accepted_edit_takes_the_place_of_the_one_before_it_and_what_was_released_stays(versions):
    released = [f"train 1 aaaaaaaa {A} began", f"train 1 aaaaaaaa {B} 0.2.0", f"export 1 aaaaaaaa {A} began"]
    path = versions(*released)
    code_versions.add("export", D)
    code_versions.add("train", C)
    code_versions.add("train", D)
    assert path.read_text().splitlines()[1:] == [
        *released,
        f"export 1 aaaaaaaa {D} unreleased",
        f"train 1 aaaaaaaa {D} unreleased",
    ]
    assert code_versions.begin("train", [D], {}).label == "train 2 (dddddddd)"
    assert path.read_text().splitlines()[1:] == [
        *released,
        f"export 1 aaaaaaaa {D} unreleased",
        f"train 2 dddddddd {D} began",
    ]
    with pytest.raises(UserError, match=r"this code already belongs to train 1 \(aaaaaaaa\)"):
        code_versions.begin("train", [B], {})


def test_two_branches_that_git_merged_line_by_line_agree_after_one_accept(versions):
    path = versions(
        f"train 1 aaaaaaaa {A} began", f"train 1 aaaaaaaa {B} unreleased", f"train 1 aaaaaaaa {C} unreleased"
    )
    code_versions.add("train", D)
    assert path.read_text().splitlines()[1:] == [f"train 1 aaaaaaaa {A} began", f"train 1 aaaaaaaa {D} unreleased"]


LABELS, HYBRID = lookup(train_objective="labels"), lookup(train_objective="hybrid")
E = "e" * 16


def test_code_without_labels_and_with_them_have_lines_of_one_version(versions):
    """So settings files of both name the version as before."""
    path = versions(f"train 1 aaaaaaaa {A} began", f"train 1 aaaaaaaa {B} 0.2.0")
    code_versions.add("train", C, D)
    lines = path.read_text().splitlines()
    assert lines[-2:] == [f"train 1 aaaaaaaa {digest} unreleased" for digest in (C, D)]
    assert {labels_of("train", C, HYBRID)[0], labels_of("train", D, LABELS)[0]} == {"train 1 (aaaaaaaa)"}
    code_versions.add("train", C, E)  # labels/ alone was edited
    assert path.read_text().splitlines() == [*lines[:-1], f"train 1 aaaaaaaa {E} unreleased"]
    assert code_versions.begin("train", [C, E], {}).digests == [C, E], "both were accepted by mistake"
    assert [line for line in path.read_text().splitlines() if "unreleased" in line] == []


def test_a_version_that_an_edit_of_labels_began_is_for_models_of_labels(versions):
    path = versions(f"train 1 aaaaaaaa {A} began", f"train 1 aaaaaaaa {A} 0.2.0", f"train 1 aaaaaaaa {B} unreleased")
    assert code_versions.begin("train", [B, C], {}).label == "train 2 (cccccccc)"
    assert path.read_text().splitlines()[-2:] == [
        f"train 1 aaaaaaaa {B} unreleased",
        f'train 2 cccccccc {C} began when {{"train.objective": ["labels"]}}',
    ]
    code_versions.add("train", D, E)  # other code was edited, and gives the same results
    assert labels_of("train", D, HYBRID) == ["train 1 (aaaaaaaa)"]
    assert labels_of("train", E, LABELS) == ["train 2 (cccccccc)"]
    with pytest.raises(UserError, match=r"this code already belongs to train 2 \(cccccccc\): there is no edit"):
        code_versions.begin("train", [A, C], {})


def test_accept_tells_an_edit_of_labels_from_other_edits(versions, capsys):
    plain, of_labels = STAGES["train"].digests
    for digests, state in (
        ((plain, of_labels), "train        train 1 (aaaaaaaa)\n"),
        ((plain,), "train        edited in labels/, in no version: the next run makes its results of label models"),
        ((of_labels,), "train        edited, in no version: the next run makes its results again\n"),
    ):
        versions(*(f"train 1 aaaaaaaa {digest} began" for digest in digests))
        accept.run(argparse.Namespace(stages=[], new=False))
        assert state in capsys.readouterr().out
    accept.accept(["train"], False, None, {})
    assert "train: this code counts as train 1 (aaaaaaaa), with the same results" in capsys.readouterr().out
    assert code_versions.version_of("train", plain).digests == [of_labels, plain]


def test_new_results_stand_in_a_section_of_what_is_not_released(tmp_path, monkeypatch):
    monkeypatch.setattr(accept, "CHANGELOG", path := tmp_path / "CHANGELOG.md")
    released = "## [0.3.0] - 2026-11-27\n\n### Results\n\n- Results: train 5 (aaaaaaaa): faster\n"
    path.write_text(f"# Changelog\n\n{released}")
    accept.note_results("train 6 (bbbbbbbb)", "other\nmasks")
    accept.note_results("train 7 (cccccccc)", "other rows")
    new = ["- Results: train 7 (cccccccc): other rows", "- Results: train 6 (bbbbbbbb): other masks"]
    first, rest = path.read_text().split(released)
    assert first.split("\n") == ["# Changelog", "", "## [Unreleased]", "", "### Results", "", *new, "", ""] and not rest
    path.write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- this\n")  # nothing is released
    accept.note_results("train 6 (bbbbbbbb)", "other masks")
    assert path.read_text().endswith("- this\n\n### Results\n\n- Results: train 6 (bbbbbbbb): other masks\n")


def test_a_line_that_is_none_is_named(versions):
    path = versions(f"train 1 aaaaaaaa {A} began", "train one two three")
    with pytest.raises(UserError, match=rf"{re.escape(str(path))}, line 3: .* 'train one two three'"):
        code_versions.read()


def test_a_stage_without_a_version_cannot_be_accepted(versions):
    versions()
    with pytest.raises(UserError, match="train has no version yet: use --new train"):
        code_versions.add("train", A)


def test_the_table_of_stages_is_in_the_order_of_the_workflow():
    names = list(STAGES)
    for stage in STAGES.values():
        assert all(names.index(read) < names.index(stage.name) for read in stage.reads), stage.name
