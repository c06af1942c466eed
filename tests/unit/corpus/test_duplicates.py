"""Digests of documents, and which of equal documents stay."""

import hashlib

import numpy as np
import pyarrow as pa

from babelmill.corpus.choosing import first_of_equal, new_among, repeats_held_out
from babelmill.corpus.record_batches import digests


def test_digests_depend_on_the_text_alone():
    whole = pa.array(["a", "", "b", "längerer Text", "a"])
    assert (digests(whole)[2:4] == digests(whole.slice(2, 2))).all()
    assert (digests(whole)[0] == digests(whole)[4]).all()
    assert len({tuple(key) for key in digests(whole).tolist()}) == 4
    expected = hashlib.blake2b("längerer Text".encode(), digest_size=16).digest()
    assert digests(whole)[3].astype("<u8").tobytes() == expected


def keys() -> np.ndarray:
    """Digests of which many agree in one half alone."""
    return np.random.default_rng(1).integers(0, 40, (3000, 2), np.uint64)


def test_the_first_of_equal_documents_stays():
    seen: set[tuple[int, ...]] = set()
    expected = []
    for key in map(tuple, keys().tolist()):
        expected.append(key not in seen)
        seen.add(key)
    assert first_of_equal(*keys().T).tolist() == expected and 1000 < sum(expected) < 2000
    known = set[bytes]()
    assert [*new_among(keys()[:100], known), *new_among(keys()[100:], known)] == expected
    assert [len(first_of_equal(*np.empty((2, n), np.uint64))) for n in (0, 1)] == [0, 1]


def test_what_repeats_a_document_that_is_held_out_is_found():
    held = {tuple(key) for key in keys()[:50].tolist()}
    expected = [i >= 50 and tuple(key) in held for i, key in enumerate(keys().tolist())]
    assert repeats_held_out(*keys().T, 50).tolist() == expected and 50 < sum(expected) < 200
