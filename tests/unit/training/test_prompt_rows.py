"""Documents of a prompt and a response: the prompt is context, and nothing of it is learnt or scored."""

import os
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

from babelmill.model.gpt_bert import GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.tokens.shard_file import ShardFile
from babelmill.training.batches.token_batches import TokenStream
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from babelmill.training.plan.layouts import Packed
from babelmill.training.plan.objectives import hides_alone, objective_of
from babelmill.training.plan.plan import Plan, every_row
from babelmill.training.plan.rows import Rows
from babelmill.training.trainer import Trainer
from helpers.programs.prepared import CONTEXT
from helpers.training.training_data import VOCABULARY, documents, section, train_settings, write_documents

CPU = torch.device("cpu")
ALONE = Processes(0, 1, 1, CPU)
LENGTHS = (5, 16, 64)


def write(path: Path, seed: int = 0, count: int = 60) -> ShardFile:
    """A shard of documents with prompts of any length: none, all but the last token, and one longer than four rows."""
    random, texts = np.random.default_rng(seed), documents(count, seed)
    texts[3] = np.array([VOCABULARY.bos, *random.integers(16, 96, 300), VOCABULARY.eos])
    prompts = [int(random.integers(0, len(text) - 2)) for text in texts]
    prompts[3] = 290
    assert 0 in prompts and len(set(prompts)) > 10
    return write_documents(path, texts, prompts=prompts)


def in_responses(shard: ShardFile) -> np.ndarray:
    """Which tokens may be targets, from the documents one by one: [tokens] bool."""
    learnt = np.zeros(len(shard.tokens), bool)
    for begin, end, response in zip(shard.offsets, shard.offsets[1:], shard.responses, strict=False):
        assert shard.tokens[begin] == VOCABULARY.bos and begin < response < end
        learnt[response:end] = True
    return learnt


@pytest.fixture
def shards(tmp_path) -> list[ShardFile]:
    """With prompts, and without."""
    plain = write_documents(tmp_path / "plain.safetensors", documents(20, 9))
    assert plain.responses is None
    return [write(tmp_path / "prompts.safetensors"), plain]


def layouts_of(shards: list[ShardFile]) -> list[Packed]:
    return [Packed(shard.offsets, shard.responses) for shard in shards]


@pytest.mark.parametrize("length", LENGTHS)
def test_targets_are_counted_from_where_documents_and_responses_start(shards, length):
    shard = shards[0]
    layout = layouts_of(shards)[0]
    padded = np.zeros((layout.rows(length), length), bool)
    padded.reshape(-1)[: len(shard.tokens)] = in_responses(shard)
    tokens = np.zeros_like(padded, np.int64)
    tokens.reshape(-1)[: len(shard.tokens)] = shard.tokens
    hideable, every = layout.targets(np.arange(len(padded)), length)
    assert every.tolist() == padded.sum(1).tolist()
    assert hideable.tolist() == (padded & (tokens != VOCABULARY.eos)).sum(1).tolist()
    assert (every == 0).any(), "a row without any target"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("objective", ["hybrid", "masked", "causal", "diffusion"])
def test_batches_hide_and_learn_what_the_plan_counts_and_nothing_of_prompts(shards, objective, length):
    objective = objective_of(section("train", objective=objective))
    layouts, learnt = layouts_of(shards), [in_responses(shards[0]), shards[1].tokens != VOCABULARY.bos]
    in_place = hides_alone(objective)
    tokens = TokenStream(shards, VOCABULARY, 7, CPU, objective, in_place)
    for kind in objective.occurring:
        rows = every_row(layouts, length, objective, kind)
        batch = tokens.micro_batch(rows, length, (1.0,) * len(objective.kinds))
        found = np.bincount(batch.positions // length, minlength=len(rows))
        assert found.tolist() == rows.targets.tolist() and (rows.targets == 0).any()
        stream, may = places(rows, length, shards, learnt)
        flat = batch.positions.numpy()
        assert may[flat].all() and (batch.targets.numpy() == stream[flat]).all()
        shown = batch.input_ids.numpy() if in_place else np.roll(batch.input_ids.numpy(), -1, 1)
        changed = shown != stream.reshape(-1, length)
        if not in_place:
            changed[:, -1] = False  # where the next row's first token would stand
        targets = np.zeros(len(stream), bool)
        targets[flat] = True
        assert not (changed.reshape(-1) & ~targets).any(), "nothing else is hidden"
        if not objective.kinds[kind].hides:
            assert not changed.any() and len(flat) == sum(part.sum() for part in learnt)


def places(rows: Rows, length: int, shards: list[ShardFile], learnt: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of rows, and which may be targets, [rows * length]; `<pad>` where there are none."""
    stream, may = np.full((len(rows), length), VOCABULARY.pad), np.zeros((len(rows), length), bool)
    for i, (language, begin, end) in enumerate(zip(rows.language, rows.begin, rows.end, strict=True)):
        stream[i, : end - begin] = shards[language].tokens[begin:end]
        may[i, : end - begin] = learnt[language][begin:end]
    return stream.reshape(-1), may.reshape(-1)


def test_prompts_of_no_token_change_nothing(tmp_path):
    texts = documents(30)
    shards = [
        write_documents(tmp_path / "plain.safetensors", texts),
        write_documents(tmp_path / "empty.safetensors", texts, prompts=[0] * 30),
    ]
    batches = []
    for shard in shards:
        objective = objective_of(section("train", objective="diffusion"))
        rows = every_row(layouts_of([shard]), 16, objective, 0)
        batches.append(TokenStream([shard], VOCABULARY, 7, CPU, objective).micro_batch(rows, 16, (1.0,)))
    assert torch.equal(batches[0].input_ids, batches[1].input_ids)
    assert torch.equal(batches[0].positions, batches[1].positions)


# Training.


def make_trainer(shards: list[ShardFile], processes: Processes = ALONE, **values) -> Trainer:
    train = section("train", **({"max_steps": 40, "clip_norm": 1e9, "global_batch_tokens": 320} | values))
    plan = Plan(train, 1.0, layouts_of(shards))
    tokens = TokenStream(shards, VOCABULARY, 7, CPU, plan.objective)
    model = section("model", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    network = GPTBertNetwork(GPTBertShape(VOCABULARY.size, **model.shape()), train, processes)
    languages = ["eng", "deu"][: len(shards)]
    settings = train_settings(languages, model, train)
    return Trainer(settings, network, plan, tokens, (plan.layouts, tokens), processes, 64)


def test_a_step_without_any_target_moves_nothing(tmp_path):
    """Rows of long prompts alone; validation counts the few targets that there are."""
    texts = [np.array([1, *range(16, 96), *range(16, 96), 2])] * 8
    shard = write_documents(tmp_path / "long.safetensors", texts, prompts=[159] * 8)
    one_row = {"sequence_lengths": [16], "phase_starts": [0.0], "global_batch_tokens": 16}
    trainer = make_trainer([shard], objective="diffusion", optimizer="adamw", weight_decay=0.0, **one_row)
    empty = [s for s in range(40) if not trainer.plan.step(s).rows.targets.any()]
    step = trainer.plan.step(empty[0])
    assert len(empty) > 5 and len(step.rows) == 1
    before = {name: value.clone() for name, value in trainer.network.weights().items()}
    outcome = trainer.run_step(empty[0]).read()
    assert outcome.norm == 0 and not outcome.sums.any() and not trainer.plan.group_counts(step.rows).any()
    assert all(torch.equal(value, before[name]) for name, value in trainer.network.weights().items())
    causal = make_trainer([shard], objective="causal").validation.measure()
    assert causal["loss"] == causal["loss_causal"] > 0 and causal["loss_masked"] is None
    assert trainer.validation.measure()["loss"] > 0


def gradients(shards: list[ShardFile], processes: Processes = ALONE) -> dict[str, list[np.ndarray]]:
    """The gradient of a step of each objective, and its sums, over all processes."""
    found = {}
    for objective in ("hybrid", "diffusion"):
        trainer = make_trainer(shards, processes, objective=objective)
        sums = trainer._learn_share(trainer.plan.step(35), [])
        trainer._gradients.reduce()
        found[objective] = [trainer._gradients.flat.numpy().copy(), processes.sum_(sums).numpy().copy()]
    return found


def one_of_three(rank: int, port: int, folder: str, results) -> None:
    """Send what `gradients` finds, as one of three processes."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "3"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    try:
        processes = Processes.start(1)
        shards = [ShardFile.open(path) for path in sorted(Path(folder).glob("*.safetensors"))]
        found = gradients(shards, processes)
        processes.stop()
        results.put(found)
    except BaseException:
        results.put(traceback.format_exc())


@pytest.mark.xdist_group("forks")  # whose server is prepared once
def test_the_gradient_does_not_depend_on_the_number_of_processes(shards, tmp_path, free_port):
    results = CONTEXT.Queue()
    started = [
        CONTEXT.Process(target=one_of_three, args=(rank, free_port, str(tmp_path), results)) for rank in range(3)
    ]
    for process in started:
        process.start()
    alone = gradients(sorted(shards, key=lambda shard: shard.path))
    answers = [results.get(timeout=300) for _ in started]
    for process in started:
        process.join()
    for answer in answers:
        assert not isinstance(answer, str), answer
        for objective, (flat, sums) in alone.items():
            found, its_sums = answer[objective]
            assert np.linalg.norm(flat) > 0.01 and np.linalg.norm(found - flat) <= 1e-6 * np.linalg.norm(flat)
            assert sums[:, 0].any() and its_sums == pytest.approx(sums, rel=1e-6)
