"""Digests of documents, and the set of them that finds duplicates."""

import hashlib

import numpy as np
import pyarrow as pa

from babelmill.corpus.digests import DigestSet, digests


def test_digests_depend_on_the_text_alone():
    whole = pa.array(["a", "", "b", "längerer Text", "a"])
    assert (digests(whole)[2:4] == digests(whole.slice(2, 2))).all()
    assert (digests(whole)[0] == digests(whole)[4]).all()
    assert len({tuple(key) for key in digests(whole).tolist()}) == 4
    expected = hashlib.blake2b("längerer Text".encode(), digest_size=16).digest()
    assert digests(whole)[3].astype("<u8").tobytes() == expected


def test_the_digest_set_agrees_with_a_python_set():
    """Keys that collide in their low bits, repeats inside a batch and across batches, and growth."""
    generator = np.random.default_rng(0)
    ours, theirs = DigestSet(), set()
    for size in (1, 0, 3000, 20_000, 7, 50_000):
        keys = generator.integers(1, 2**63, (1 + size // 2, 2), np.uint64)[generator.integers(0, 1 + size // 2, size)]
        keys[:40, 0] <<= np.uint64(40)
        keys[20:60, 0] = 7
        new = ours.add(keys)
        for key, is_new in zip(map(tuple, keys.tolist()), new.tolist(), strict=True):
            assert is_new == (key not in theirs)
            theirs.add(key)
        assert ours.contains(keys).all()
        assert len(ours) == len(theirs)
    absent = generator.integers(1, 2**63, (1000, 2), np.uint64)
    assert not ours.contains(absent).any()
