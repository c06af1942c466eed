"""Make `tests/data/languages.bin`: a tiny model of fastText that tells five languages apart, for `language_filter`.

    pip install fasttext-community==0.11.9   # in an environment of its own: its module is called as fasttext-predict's
    python benchmarks/real_text.py TEXTS en-us de fr nl da
    python tests/helpers/models/make_languages.py TEXTS

The labels have the form of GlotLID's. The model says nothing about how good GlotLID is.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

LABELS = {"en-us": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn", "nl": "nld_Latn", "da": "dan_Latn"}
OUT = Path(__file__).parents[2] / "data/languages.bin"


def main() -> None:
    """Train the model on the help pages in a folder."""
    import fasttext

    lines = []
    for name, label in LABELS.items():
        for row in (Path(sys.argv[1]) / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[:600]:
            lines += [f"__label__{label} {part}\n" for part in json.loads(row)["text"].split("\n") if len(part) >= 20]
    random.Random(0).shuffle(lines)
    # Hardly any word counts, only characters in a row: so other texts are told apart, too.
    sizes = {"dim": 4, "bucket": 4000, "minn": 2, "maxn": 3, "minCount": 50_000}
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        model = fasttext.train_supervised(file.name, lr=0.2, epoch=3, thread=1, seed=1, loss="softmax", **sizes)
    model.save_model(str(OUT))


if __name__ == "__main__":
    main()
