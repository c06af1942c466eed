"""A group in which some models fail: the others are converted; the end and the status say what failed, where and why."""

import re

import pytest

from conftest import EXPLODING, ROOT, SMALL

pytestmark = pytest.mark.slow


def test_a_failure_stops_nobody_else_and_is_told_at_the_end(workspace):
    models = {
        "greedy": {"languages": ["eng"], "tokenizer": {"vocab_size": 100_000}},
        "deu": {"evaluation": {"max_documents": 10, "sequence_length": 64}, "card": {"license": "cc-by-4.0"}},
        "hasty": {"languages": ["deu"], "train": SMALL["train"] | EXPLODING},
    }
    workspace.configure(SMALL | {"models": models, "groups": {"mine": ["eng", *models]}})
    done = workspace.snakemake("mine", "--profile", ROOT / "profiles/local", "--retries", "1", check=False)
    assert done.returncode == 1
    output = done.stdout + done.stderr
    summary = output[output.rindex("2 of 4 models converted, 2 jobs failed:") :].splitlines()
    greedy = next(i for i, x in enumerate(summary) if re.fullmatch(r" +tokenizer eng-\w+ \(greedy\): 2 attempts", x))
    log = summary[greedy + 1].strip()
    assert re.fullmatch(r"logs/tokenizer/eng-\w+\.log:", log)
    assert "error: tokenizer.vocab_size = 100000" in summary[greedy + 3]
    hasty = next(i for i, line in enumerate(summary) if re.fullmatch(r" +train deu-\w+ \(hasty\): 2 attempts", line))
    assert "learning_rate" in "".join(summary[hasty + 1 : hasty + 7])
    assert "cc-by-4.0" in (workspace.path / "converted/deu/README.md").read_text()
    failed = re.findall(r"^\d\d:\d\d:\d\d   failed  (\w+) +\S+ \((\w+)\)  ", output, re.MULTILINE)
    assert sorted(failed) == [("tokenizer", "greedy")] * 2 + [("train", "hasty")] * 2
    assert output.count(f"    {log}\n") == 1 and output.count("error: tokenizer.vocab_size = 100000") == 1
    assert output.count("tokenizer.vocab_size = 100000") == 3, "of each attempt, and in the summary"
    models |= {"one": {"languages": ["eng"], "evaluation": {"suites": ["nosuch"]}}}
    workspace.configure(SMALL | {"models": models})
    status = workspace.babelmill("status", "greedy", "deu", "one")
    assert re.search(r"^greedy +tokenizer +failed +tokenizer.vocab_size = 100000: ", status, re.MULTILINE)
    assert re.search(r"^one +failed .*nosuch", status, re.MULTILINE), "a mistake in one model hides no other"
    assert status.endswith(f"3 models: 1 converted, 2 failed\ngreedy: {log.rstrip(':')}\n")
    for noise in ("Error in rule", "RuleException", "Traceback", "WorkflowError", "Select jobs", "reason"):
        assert noise not in output
