"""`train.order: documents`: the documents are shuffled anew in each epoch, and then cut into rows."""

from pathlib import Path

import numpy as np
import pytest

from babelmill.tokens.shard_file import ShardFile
from babelmill.training.plan import randomness
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.randomness import DOCUMENTS, ORDER
from helpers.training.training_data import VOCABULARY, documents, section, stream, write_documents

SEED = 7


def settings(**values):
    return section("train", **{"seed": SEED, "order": "documents", "objective": "causal", "max_steps": 30} | values)


def corpora(folder: Path) -> list[ShardFile]:
    """Many documents with prompts; a few, of which one is longer than many rows and some are empty; one alone."""
    texts = documents(70), [*documents(5, 3), *[np.array([1, 2])] * 3, documents(1, 4, 2)[0]], documents(1, 5)
    texts[1][2] = np.array([1, *range(16, 96), *range(16, 96), *range(16, 96), 2])
    prompts = [i % max(1, len(text) - 2) for i, text in enumerate(texts[0])]
    return [write_documents(folder / f"{i}.safetensors", texts[i], prompts=[prompts, None, None][i]) for i in range(3)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> list[ShardFile]:
    return corpora(tmp_path_factory.mktemp("order"))


def shuffled_in_memory(shard: ShardFile, *key: int) -> list[int]:
    """The places of all tokens of a shard, with its documents in the order of this key."""
    number = len(shard.offsets) - 1
    order = randomness.permutation(number, randomness.key(SEED, DOCUMENTS, *key)).tolist()
    return [at for document in order for at in range(shard.offsets[document], shard.offsets[document + 1])]


@pytest.mark.parametrize("lengths", [[16, 64], [5, 12], [400, 8]])
@pytest.mark.parametrize("languages", [[0], [1], [2], [0, 1, 2]], ids=str)
def test_every_row_is_that_of_a_plain_shuffle(shards, languages, lengths):
    """Of all steps of a run with two phases: its tokens, its targets, and what the plan says of their number."""
    used = [shards[i] for i in languages]
    train = settings(sequence_lengths=lengths, phase_starts=[0.0, 0.6], global_batch_tokens=480)
    tokens, layouts = stream(used, SEED, objective="causal")
    plan = Plan(train, 0.5, layouts)
    seen, epochs = {}, {}
    for number in range(plan.steps):
        step, phase = plan.step(number), int(number >= 0.6 * plan.steps)
        batch = tokens.micro_batch(step.rows, step.length, (0.0, 1.0))
        targets = np.split(batch.targets.numpy(), np.cumsum(step.rows.targets)[:-1])
        for i, language in enumerate(step.rows.language.tolist()):
            shard, count = used[language], layouts[language].rows(step.length)
            nth = seen[phase, language] = seen.get((phase, language), -1) + 1
            epoch, position = divmod(nth, count)
            key = phase, epoch, language
            if key not in epochs:
                rows = randomness.permutation(count, randomness.key(SEED, ORDER, *key))
                epochs[key] = shuffled_in_memory(shard, *key), rows
            order, rows = epochs[key]
            places = np.array(order[rows[position] * step.length :][: step.length])
            inside = shard.tokens[places].astype(int)
            assert batch.input_ids[i, : len(places)].tolist() == [VOCABULARY.bos, *inside[:-1]]
            learnt = inside[(inside != VOCABULARY.bos) & ~shard.in_prompts(places)]
            assert targets[i].tolist() == learnt.tolist()
            assert step.rows.targets[i] == len(learnt)
    assert len({epoch for _, epoch, _ in epochs}) > 2 and len({phase for phase, _, _ in epochs}) == 2
    orders = [tuple(order) for (_, _, language), (order, _) in epochs.items() if languages[language] == 0]
    assert len(set(orders)) == len(orders), "each epoch, each phase and each language has its own order"


@pytest.mark.parametrize("objective", ["hybrid", "masked", "diffusion"])
def test_the_plan_knows_how_many_tokens_may_be_hidden(shards, objective):
    """In rows of all kinds: else fewer tokens than planned would be hidden."""
    tokens, layouts = stream(shards, SEED, objective=objective)
    plan = Plan(settings(objective=objective, mask_rate_start=1.0, mask_rate_end=1.0), 1.0, layouts)
    for number in (0, 9, 29):
        step = plan.step(number)
        batch = tokens.micro_batch(step.rows, step.length, step.weights)
        found = np.bincount(batch.positions.numpy() // step.length, minlength=len(step.rows))
        assert found.tolist() == step.rows.targets.tolist() and found.any()
