"""The shard format: any safetensors reader understands it, our reader maps it, and damage is named."""

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from babelmill.tokens.shard_file import ShardFile, write_shard

DOCUMENTS = [[1, 20, 21, 2], [1, 2], [1, 65535, 300, 301, 2]]


def write(path, documents=DOCUMENTS, vocab_size=65536):
    batches = ((np.array(tokens, np.uint32), np.array([len(tokens)]), None) for tokens in documents)
    assert write_shard(path, vocab_size, "ab" * 32, batches) == sum(map(len, documents))
    return path


@pytest.mark.parametrize("vocab_size, dtype", [(65536, np.uint16), (65537, np.uint32)])
def test_safetensors_and_our_reader_agree(tmp_path, vocab_size, dtype):
    path = write(tmp_path / "train.safetensors", vocab_size=vocab_size)
    shard = ShardFile.open(path)
    tensors = load_file(path)
    for name, array in (("tokens", shard.tokens), ("offsets", shard.offsets)):
        assert tensors[name].dtype == array.dtype and tensors[name].tolist() == array.tolist()
    assert shard.tokens.dtype == dtype and shard.offsets.dtype == np.int64
    assert [shard.tokens[a:b].tolist() for a, b in zip(shard.offsets, shard.offsets[1:], strict=False)] == DOCUMENTS
    with safe_open(path, "np") as file:
        assert file.metadata() == shard.metadata == {"tokenizer_sha256": "ab" * 32, "vocab_size": str(vocab_size)}
    assert shard.vocab_size == vocab_size
    assert isinstance(shard.tokens, np.memmap)
