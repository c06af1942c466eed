"""Check names that the Hugging Face Hub accepts in a model card: of languages and of licences.

The Hub refuses a card with any other name when the finished model is uploaded, which may be days later.
"""

import re

from babelmill.config.layers import nearest

# ISO 639-1; `sh` is no longer part of it, but still in use.
_TWO = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo"
    " es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka"
    " kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng"
    " nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st"
    " su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
TWO_LETTERS = frozenset(_TWO.split())
NO_LANGUAGE = ("code", "multilingual")  # what else the Hub accepts

_LICENCES = (
    "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m"
    " afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0"
    " cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0"
    " cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0"
    " cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl"
    " gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr"
    " mpl-2.0 odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr"
    " deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4"
    " grok2-community gemma unknown other"
)
LICENCES = frozenset(_LICENCES.split())


def language_tag(tag: str) -> str:
    """Return the tag of a language; raise a ValueError if the Hub does not accept it. "" means the usual tag."""
    if not tag or tag in NO_LANGUAGE or tag in TWO_LETTERS or re.fullmatch("[a-z]{3}", tag, re.ASCII):
        return tag
    if re.fullmatch("[a-z]{2}", tag, re.ASCII):
        raise ValueError(f"{tag!r} is no code of ISO 639-1{nearest(tag, TWO_LETTERS)}")
    begun = re.split("[_-]", tag)[0].lower()
    instead = f", such as {begun}" if re.fullmatch("[a-z]{2,3}", begun, re.ASCII) else ", such as en or gsw"
    raise ValueError(
        f"the Hub does not accept {tag!r}: a code of ISO 639 is expected, two or three small letters without country or"
        f" script{instead}; or {' or '.join(NO_LANGUAGE)}"
    )


def licence(name: str) -> str:
    """Return the name of a licence; raise a ValueError if the Hub does not accept it."""
    if name not in LICENCES:
        raise ValueError(
            f"the Hub does not accept this name of a licence{nearest(name, LICENCES)} (write other for a licence that"
            " the Hub has no name for)"
        )
    return name
