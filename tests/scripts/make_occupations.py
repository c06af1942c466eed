"""Make a table of occupations in three languages with five-digit codes: a labelled corpus that anybody can learn.

    python tests/scripts/make_occupations.py occupations.csv

The table is made, not collected: word lists below, spelt as clerks might have. The codes look like HISCO's, and some are,
but nobody should code people by them. The same rows come out on every run.
"""

import csv
import random
import sys
from pathlib import Path

LANGUAGES = ("eng", "deu", "nld")
# {code: wordings in each of LANGUAGES}
TRADES: dict[str, tuple[tuple[str, ...], ...]] = {
    "61110": (("farmer", "yeoman", "tills his own land"), ("Bauer", "Landwirt", "Ackersmann"), ("boer", "landbouwer")),
    "62105": (("farm hand", "ploughman", "day labourer"), ("Knecht", "Tagelöhner"), ("boerenknecht", "daggelder")),
    "64100": (("fisher", "fisherman", "herring fisher"), ("Fischer", "Seefischer"), ("visser", "visscherman")),
    "83110": (("blacksmith", "smith"), ("Schmied", "Hufschmied"), ("smid", "hoefsmid")),
    "77610": (("baker", "bread baker"), ("Bäcker", "Brotbäcker"), ("bakker", "broodbakker")),
    "77120": (("miller", "corn miller"), ("Müller", "Windmüller"), ("molenaar", "korenmolenaar")),
    "75400": (("weaver", "linen weaver"), ("Weber", "Leineweber"), ("wever", "linnenwever")),
    "79100": (("tailor", "tailoress"), ("Schneider", "Damenschneider"), ("kleermaker", "snijder")),
    "80110": (("shoemaker", "cordwainer"), ("Schuster", "Schuhmacher"), ("schoenmaker", "schoenlapper")),
    "95410": (("carpenter", "ship carpenter"), ("Zimmermann", "Schiffszimmermann"), ("timmerman", "scheepstimmerman")),
    "81120": (("joiner", "cabinet maker"), ("Tischler", "Möbelschreiner"), ("schrijnwerker", "meubelmaker")),
    "95120": (("mason", "bricklayer"), ("Maurer", "Ziegelmaurer"), ("metselaar",)),
    "77310": (("butcher", "pork butcher"), ("Metzger", "Fleischer"), ("slager", "vleeschhouwer")),
    "81930": (("cooper", "barrel maker"), ("Küfer", "Fassbinder"), ("kuiper",)),
    "13940": (("teacher", "schoolmaster"), ("Lehrer", "Schulmeister"), ("onderwijzer", "schoolmeester")),
    "98135": (("sailor", "mariner", "seaman"), ("Matrose", "Seemann"), ("matroos", "zeeman")),
    "54020": (("maid", "housemaid", "servant girl"), ("Dienstmädchen", "Hausmagd"), ("dienstbode", "meid")),
    "41025": (("merchant", "grocer", "shopkeeper"), ("Kaufmann", "Krämer"), ("koopman", "winkelier")),
    "93120": (("painter", "house painter"), ("Maler", "Anstreicher"), ("schilder", "huisschilder")),
    "62740": (("gardener", "nurseryman"), ("Gärtner", "Ziergärtner"), ("tuinman", "hovenier")),
    "62460": (("shepherd", "sheep herder"), ("Schäfer", "Schafhirt"), ("herder", "schaapherder")),
    "39310": (("clerk", "copyist", "office clerk"), ("Schreiber", "Kontorist"), ("klerk", "kantoorbediende")),
    "71105": (("miner", "coal miner", "collier"), ("Bergmann", "Hauer"), ("mijnwerker", "kompel")),
    "06105": (("physician", "doctor", "surgeon"), ("Arzt", "Wundarzt"), ("arts", "geneesheer")),
    "07310": (("midwife",), ("Hebamme", "Wehmutter"), ("vroedvrouw",)),
    "58340": (("soldier", "private soldier"), ("Soldat", "Musketier"), ("soldaat",)),
    "51050": (("innkeeper", "publican"), ("Gastwirt", "Schankwirt"), ("herbergier", "kastelein")),
    "98620": (("coachman", "carter"), ("Kutscher", "Fuhrmann"), ("koetsier", "voerman")),
}
NONE = (("no occupation", "at home", "lives with her parents"), ("ohne Beruf", "bei den Eltern"), ("zonder beroep",))
RANKS = (
    ("", "", "", "master ", "journeyman ", "apprentice ", "retired ", "former ", "poor "),
    ("", "", "", "gewesener ", "alter ", "herzoglicher ", "armer ", "lediger "),
    ("", "", "", "meester ", "oud ", "gewezen ", "arme ", "gepensioneerd "),
)
PLACES = (
    ("", "", "", " in the village", " at the harbour", " of this parish", " on the estate", " in London"),
    ("", "", "", " im Dorf", " am Hafen", " hierselbst", " auf dem Gut", " in Köln"),
    ("", "", "", " in het dorp", " aan de haven", " alhier", " op het landgoed", " te Gent"),
)
AND = (" and ", " und ", " en ")
SPELLINGS = [pair.split() for pair in ("ck k", "th t", "ee e", "ij y", "f ff", "i y", "s z", "er ar", "k c")]
HEADER = ("id", "occ1", "lang", "code1", "code2")


def misspelt(text: str, chance: random.Random) -> str:
    """Return a text as a clerk in a hurry may write it."""
    fate = chance.random()
    if fate < 0.15:
        old, new = chance.choice(SPELLINGS)
        return text.replace(old, new, 1)
    if fate < 0.25:
        place = chance.randrange(1, len(text))
        return text[:place] + text[place + 1 :] if fate < 0.2 else text[:place] + text[place - 1 :]
    return text.upper() if fate < 0.28 else text.capitalize() if fate < 0.4 else text


def rows(count: int = 3000, seed: int = 1) -> list[tuple[str, str, str, str, str]]:
    """Return rows of `HEADER`: one in seven has two codes, one in thirty "-1", one in fifty none that anybody wrote down.

    Where the first of two codes was not written down, the second column still has one.
    """
    chance = random.Random(seed)
    found = []
    for number in range(1, count + 1):
        language = chance.randrange(len(LANGUAGES))
        codes = chance.sample(sorted(TRADES), 2 if chance.random() < 1 / 7 else 1)
        text = AND[language].join(chance.choice(TRADES[code][language]) for code in codes)
        if chance.random() < 1 / 30:
            codes, text = ["-1"], chance.choice(NONE[language])
        text = misspelt(chance.choice(RANKS[language]) + text + chance.choice(PLACES[language]), chance)
        codes = [*codes, ""][:2]
        if chance.random() < 1 / 50:
            codes[0] = ""
        found.append((str(number), text, LANGUAGES[language], *codes))
    return found


def write(path: str | Path, count: int = 3000, seed: int = 1, language: str | None = None) -> None:
    """Write a table of `count` rows, or only those of them that are in one `language`."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEADER)
        table.writerows(row for row in rows(count, seed) if language in (None, row[2]))


if __name__ == "__main__":
    write(sys.argv[1])
