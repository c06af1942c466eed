"""Run by test_train.py under torchrun: the gradients of some steps, for several ratios, precisions and micro-batches.

python tests/e2e/gradients.py OUT.pt
"""

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from babelmill.model.gpt_bert import GPTBertConfig
from babelmill.training.distributed import Processes
from babelmill.training.plan import Plan
from babelmill.training.trainer import Trainer
from training_data import VOCABULARY, documents, section, stream, write_documents

if __name__ == "__main__":
    processes = Processes.start(threads=int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    gradients = {}
    with tempfile.TemporaryDirectory() as folder:
        shards = [write_documents(Path(folder) / f"{i}.safetensors", documents(80 >> i, seed=i)) for i in range(2)]
        tokens, counts = stream(shards)
    for ratio in ("1/2", "2/5", "15/16"):
        for precision in ("fp32", "bf16"):
            for rows in (1, 3, 16):  # 17, 6 and 2 micro-batches: the last leave processes without any
                values = {"hybrid_ratio": ratio, "precision": precision, "micro_batch_tokens": 32 * rows}
                train = section("train", global_batch_tokens=32 * 17, max_steps=40, clip_norm=1e9, **values)
                settings = SimpleNamespace(train=train, languages=["eng", "deu"])
                shape = GPTBertConfig(vocab_size=VOCABULARY.size, **section("model").model_dump())
                plan = Plan(train, 1.0, counts)
                trainer = Trainer(settings, shape, plan, tokens, (counts, tokens), processes)
                trainer.run_step(35)
                gradients[ratio, precision, rows] = trainer._gradients.flat.clone()
    if processes.main:
        torch.save(gradients, sys.argv[1])
    processes.stop()
