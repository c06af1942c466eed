"""Forcing a stage: `-R train` trains anew, and forcing another stage does not cost an interrupted training its steps."""


def test_only_a_forced_training_loses_its_checkpoints(workspace):
    link = workspace.path / "results/of/eng/train"
    kept = workspace.path / "results/checkpoints" / link.readlink().name
    mark = kept / "mark"  # stands for the steps that are done
    mark.touch()
    (link / "manifest.json").unlink()  # as after an interruption

    done = workspace.snakemake("converted/eng", "--until", "train", "-R", "shards")
    assert mark.exists() and "begins anew" not in done.stdout + done.stderr
    assert (link / "manifest.json").is_file()

    done = workspace.snakemake("converted/eng", "--until", "train", "-R", "train")
    assert not mark.exists() and f"training begins anew: results/checkpoints/{kept.name}" in done.stdout + done.stderr
    assert list(kept.glob("step-*.safetensors")) and (link / "manifest.json").is_file()
