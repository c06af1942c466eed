"""Make the page about a text, and a short summary for the terminal. All text on it is from outside and is escaped."""

from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from babelmill import __version__
from babelmill.core.escape import line, some
from babelmill.core.words import plural, short
from babelmill.reporting.figures import COLOURS, picture
from babelmill.reporting.page import environment
from babelmill.survey.measures import NONE, UNKNOWN

SOURCE, MADE = "source", "corpus"  # which text was looked at: before or after the stage `corpus`
TEMPLATE = Path(__file__).with_name("page.html")
MOST_BARS = 15  # lines of a table of shares; the rest is one line
MOSTLY = 0.9  # share of the documents (without those too short to tell); if fewer are in the language, the page says so
OF_LANGUAGE = 5  # documents of each language that are shown
LANGUAGES_SHOWN = 12
ODDEST = {
    "longest": "The longest documents",
    "shortest": "The shortest documents",
    "longest_word": "The longest words",
    "odd_characters": "The most odd characters",
    "mojibake": "The most places that look like a wrong encoding",
    "repeated_lines": "The most repetition inside a document",
    "mixed_scripts": "The most letters of other scripts than the main one",
    "few_letters": "The fewest letters",
}
VALUES = {
    "longest": "{characters:,} characters",
    "shortest": "{characters:,} characters",
    "longest_word": "a word of {value:,.0f} characters",
    "odd_characters": "{percent} of its characters",
    "mojibake": "{value:.2g} places per 1,000 characters",
    "repeated_lines": "{percent} of its lines (in characters) stand in it before",
    "mixed_scripts": "{percent} of its letters",
    "few_letters": "{percent} of its characters are no letters",
}
ODD = {
    "control": ("control characters", "corpus.control_characters: remove"),
    "replacement": ("replacement characters (U+FFFD)", "the text was damaged earlier: get it again from its source"),
    "private": ("private characters", "they belong to one font, or an encoding was wrong"),
    "unassigned": ("unassigned characters", "Unicode has no such character (yet)"),
    "mojibake": ("places of a wrong encoding", "corpus.repair: ftfy, or corpus.encoding if it is the whole file"),
}
GROUPS = {"category": "Categories, by size", "data-source": "Sources, by size", "license": "Licences, by size"}


def page(code: str, figures: dict[str, Any], names: dict[str, str]) -> str:
    """Return the page about a text as one HTML file.

    `code` is the name of the text. `names`: {code of a language as the model that judges them has it: name}.
    """
    title = figures["asked"]["name"]
    return (
        environment()
        .from_string(TEMPLATE.read_text(encoding="utf-8"))
        .render(
            name=title if title == code else f"{title} ({code})",
            version=__version__,
            of=of(figures),
            facts=facts(figures),
            remarks=remarks(figures),
            histogram=histogram(figures),
            lengths=lengths(figures),
            judged=judged(figures),
            scripts=bars({name or "(no letters)": number for name, number in figures["scripts"].items()}),
            languages=bars({name: each["documents"] for name, each in figures["languages"].items()}, names=names),
            of_language=of_language(figures, names),
            repetition=repetition(figures),
            frequent=[
                {
                    "text": shown(each["text"]),
                    "documents": f"{each['documents']:,}",
                    "percent": percent(share(each["documents"], figures["documents"])),
                }
                for each in figures["frequent_lines"]
            ],
            near=[
                {"about": f"similarity {each['similarity']:.2f}", "text": shown(each["text"]), "of": shown(each["of"])}
                for each in figures["near_copies"]["examples"]
            ],
            odd=odd(figures),
            groups=[
                (GROUPS[column], bars(sizes_of_group(values, figures["bytes"]), "bytes"))
                for column, values in figures["groups"].items()
            ],
            random=[entry(each) for each in figures["random"]],
            oddest=[
                (title, [entry(each, kind) for each in figures["oddest"][kind]])
                for kind, title in ODDEST.items()
                if figures["oddest"].get(kind)
            ],
        )
    )


def share(part: float, whole: float) -> float:
    """Return a share; 0 of nothing."""
    return part / whole if whole else 0.0


def shown(text: str) -> Markup:
    """Return text from outside as HTML. Line ends stay; what a browser obeys or hides is spelled out."""
    return Markup("\n").join(escape(line(each)) for each in text.replace("\t", "    ").split("\n"))


def percent(value: float) -> str:
    """Return a share in percent; a small one that is not 0 never looks like 0."""
    return f"{100 * value:.1f}" if value == 0 or value >= 0.0005 else "<0.1"


def of(figures: dict[str, Any]) -> str:
    """Return which text the page is about."""
    if figures["of"] == SOURCE:
        files = figures["read"]["files"]
        sources = [plural(files, "file")] if files else []
        sources += ["the documents that come with Python (corpus.builtin)"] if figures["builtin"] else []
        return f"The text of {' and of '.join(sources)}, before anything is cleaned or dropped"
    return "The corpus that the stage `corpus` made, training and validation text together"


def facts(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the main numbers."""
    return [
        ("Documents", f"{figures['documents']:,}"),
        ("Words", f"{figures['words']:,}"),
        ("Characters", f"{figures['characters']:,}"),
        ("Size", f"{figures['bytes'] / 1e6:,.1f} MB"),
    ]


def remarks(figures: dict[str, Any]) -> list[str]:
    """Return what a reader must not miss: another language than asked for, and what could not be read."""
    found = []
    asked, languages = figures["asked"], figures["languages"]
    told = figures["judged"] - languages.get(UNKNOWN, {}).get("documents", 0)
    of_asked = share(languages.get(asked["tag"], {}).get("documents", 0), told)
    if asked["is_known"] and told and of_asked < MOSTLY:
        found.append(f"only {percent(of_asked)} % of the documents that are not too short look like {asked['name']}")
    dropped = {kind: number for kind, number in figures["read"]["dropped"].items() if number}
    if dropped:
        reasons = ", ".join(f"{number:,} {kind}" for kind, number in sorted(dropped.items()))
        found.append(f"{plural(sum(dropped.values()), 'document')} without readable text: {reasons}")
    if figures["damaged_files"]:
        names = some(f"{path} ({problem.partition(':')[0]})" for path, problem in figures["damaged_files"].items())
        found.append(f"files that could not be read to the end: {names}")
    return found


def judged(figures: dict[str, Any]) -> str:
    """Return, if only a sample of the documents was judged, how large it is."""
    if figures["judged"] == figures["documents"]:
        return ""
    sample = f"{figures['judged']:,} of {figures['documents']:,} documents"
    return f" A sample was judged: {sample}, drawn by their digests, and all very long ones."


def histogram(figures: dict[str, Any]) -> Markup:
    """Draw the number of documents by their length."""
    rows, middle = figures["histogram"], figures["lengths"]["characters"]
    if not rows:
        return Markup("")

    def draw(panels: Any) -> None:
        (axes,) = panels
        heights = [row["documents"] for row in rows]
        axes.stairs(heights, [rows[0]["from"], *(row["below"] for row in rows)], fill=True, color=COLOURS[0])
        axes.set(title="documents", xlabel="characters (log)", xscale="log")

    label = f"Lengths of {figures['documents']:,} documents: half of them have at most {middle['50%']:,} characters"
    return picture(label, 1, draw, alone=True)


def lengths(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the table of lengths."""
    heads = [*figures["lengths"]["characters"]]
    lines = [(unit, [f"{values[head]:,}" for head in heads]) for unit, values in figures["lengths"].items()]
    return {"heads": heads, "lines": lines}


def bars(numbers: dict[str, int], unit: str = "", names: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the lines of a table of shares, the largest first; those at its end together. `names` go beside them."""
    whole = sum(numbers.values())
    ordered = sorted(numbers.items(), key=lambda each: (-each[1], each[0]))
    first, rest = ordered[:MOST_BARS], ordered[MOST_BARS:]
    if rest:
        first.append((f"{len(rest):,} others", sum(number for _, number in rest)))
    return [
        {
            "name": line(name, 80),
            "note": (names or {}).get(name, ""),
            "number": f"{number / 1e6:,.1f} MB" if unit == "bytes" else f"{number:,}",
            "percent": percent(share(number, whole)),
            "bar": bar(share(number, whole)),
        }
        for name, number in first
    ]


def sizes_of_group(values: dict[str, Any], whole: int) -> dict[str, int]:
    """Return the bytes of each category, source or licence. `whole`: those of all documents, so also without one."""
    sizes = {name: each["bytes"] for name, each in values.items()}
    without = whole - sum(sizes.values())
    return sizes | ({NONE: sizes.get(NONE, 0) + without} if without else {})


def bar(part: float) -> Markup:
    """Draw a share."""
    rest = '<rect class="rest" x="0" y="5" width="100%" height="8"/>'
    return Markup(
        '<svg class="strip" height="18" aria-hidden="true">'
        f'{rest}<rect class="bar" x="0" y="5" width="{100 * part:.2f}%" height="8"/></svg>'
    )


def of_language(figures: dict[str, Any], names: dict[str, str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return documents of each language, the most frequent language first."""
    codes: list[str] = [*figures["languages"]][:LANGUAGES_SHOWN]
    shown = figures["of_language"]
    return [(names.get(code, code), [entry(each) for each in shown.get(code, [])[:OF_LANGUAGE]]) for code in codes]


def repetition(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return how much is repeated."""
    lines, documents = figures["lines"], figures["documents"]
    found = [("Exact copies", of_all(figures["copies"], documents, "document"))]
    near = figures["near_copies"]
    what = f"Near copies, from {near['least']:g} on"
    found.append((what, of_all(near["documents"], documents, "document") + ", exact copies among them"))
    if near["validation_like_training"]:
        found.append(("Validation text like training text", plural(near["validation_like_training"], "document")))
    found += [
        ("Lines in several documents", of_all(lines["in_several_documents"], lines["in_documents"], "line")),
        ("Lines repeated in a document", of_all(lines["repeated_in_document"], lines["lines"], "line")),
    ]
    return found


def of_all(part: int, whole: int, noun: str) -> str:
    """Return a number and its share of the whole."""
    return f"{part:,} of {plural(whole, noun)} ({percent(share(part, whole))} %)"


def odd(figures: dict[str, Any]) -> list[dict[str, str]]:
    """Return the table of odd characters. Kinds that do not occur have a 0, so that one sees what was looked for."""
    found = {"mojibake": (figures["mojibake"]["documents"], figures["mojibake"]["places"])}
    found |= {kind: (each["documents"], each["characters"]) for kind, each in figures["odd_characters"].items()}
    lines = []
    for kind, (name, what_helps) in ODD.items():
        documents, number = found.get(kind, (0, 0))
        numbers = {"documents": f"{documents:,}", "number": f"{number:,}"}
        lines.append({"name": name, "help": what_helps if documents else ""} | numbers)
    return lines


def entry(about: dict[str, Any], kind: str = "") -> dict[str, Any]:
    """Return what is shown of a document."""
    facts = []
    if kind:
        value = about["value"]
        facts.append(VALUES[kind].format(value=value, percent=f"{percent(value)} %", characters=about["characters"]))
    if not kind or kind not in ("longest", "shortest"):
        facts.append(f"{about['characters']:,} characters")
    if about["language"]:
        facts.append(f"language: {about['language']}")
    if about["start"]:
        facts.append(f"from character {about['start']:,} on")
    cut = about["start"] + len(about["text"]) < about["characters"]
    return {"about": "; ".join(facts), "text": shown(about["text"]) + (Markup(" …") if cut else "")}


def summary(figures: dict[str, Any]) -> list[str]:
    """Return a few lines for the terminal."""
    documents, lines = figures["documents"], figures["lines"]
    middle, languages = figures["lengths"]["characters"], figures["languages"]
    script = max(figures["scripts"], key=lambda name: figures["scripts"][name], default="")
    of_script = share(figures["scripts"].get(script, 0), documents)
    first = [f"{code} {percent(share(each['documents'], figures['judged']))} %" for code, each in languages.items()]
    near = figures["near_copies"]
    with_odd, broken = figures["odd_characters"].get("any", {}).get("documents", 0), figures["mojibake"]["documents"]
    return [
        f"{plural(documents, 'document')}, {short(figures['words'])} words, {figures['bytes'] / 1e6:,.1f} MB",
        f"length: half have at most {middle['50%']:,} characters, 99 % at most {middle['99%']:,}, the longest has"
        f" {middle['most']:,}",
        f"script: {script or 'none'} ({percent(of_script)} % of the documents)",
        f"languages: {', '.join(first[:6]) or 'none'}",
        f"exact copies: {of_all(figures['copies'], documents, 'document')}",
        f"near copies (from {near['least']:g} on, exact ones too): {of_all(near['documents'], documents, 'document')}",
        f"lines in several documents: {of_all(lines['in_several_documents'], lines['in_documents'], 'line')}",
        f"documents with odd characters: {with_odd:,}; with places that look like a wrong encoding: {broken:,}",
        *remarks(figures),
    ]
