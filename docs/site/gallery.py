"""Copy what the tutorial made into `docs/gallery`, with pictures of its pages (at a release, in the folder of the run).

python docs/site/gallery.py
"""

import shutil
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow"), str(ROOT / "tests")]

from helpers.browser import Browser  # noqa: E402

GALLERY = ROOT / "docs/gallery"
COPIES = {
    "reports/corpora/eng.html": "corpus.html",
    "converted/eng/README.md": "card.md",
    "converted/eng/training_history.png": "training_history.png",
    "experiments/rates/page.html": "experiment.html",
    "experiments/rates/table.tex": "experiment.tex",
    "reports/rates.html": "report.html",
}

GALLERY.mkdir(exist_ok=True)
for source, name in COPIES.items():
    shutil.copy(source, GALLERY / name)
with Browser() as browser:
    for shown in GALLERY.glob("*.html"):
        browser.open(shown, 1000)
        browser.screenshot(picture := shown.with_suffix(".png"), whole=False)
        Image.open(picture).convert("RGB").quantize(256).save(picture, optimize=True)  # half the size
