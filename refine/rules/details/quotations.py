"""What a text quotes."""

import re

from refine.rules.details.tokens import UNSPACED

# Straight quotation marks open and close where an apostrophe or an inch sign does not stand.
_OPENS, _CLOSES = rf"(?<![^\W{UNSPACED}])", rf"(?![^\W{UNSPACED}])"
_MOST = 10_000
# Of a poem, say, over several lines, but not over an empty one.
_STRAIGHT = r'(?:[^"\n]|\n(?!\s*\n))'
_QUOTATION = re.compile(
    rf"""
      {_OPENS}"(?=\S)({_STRAIGHT}{{1,{_MOST}}})(?<=\S)"{_CLOSES}
    | “([^“”]{{1,{_MOST}}})” | „([^“”„"]{{1,{_MOST}}})[“”"]
    | {_OPENS}”(?=\S)([^“”]{{1,{_MOST}}})(?<=\S)”{_CLOSES}
    | ‚([^‚‘’]{{1,{_MOST}}})[‘’]
    | «([^«»]{{1,{_MOST}}})» | »([^«»]{{1,{_MOST}}})«
    | ‹([^‹›]{{1,{_MOST}}})› | ›([^‹›]{{1,{_MOST}}})‹
    | 「([^「」]{{1,{_MOST}}})」 | 『([^『』]{{1,{_MOST}}})』 | 《([^《》]{{1,{_MOST}}})》
    | 〝([^〝〞〟]{{1,{_MOST}}})[〞〟]
    | {_OPENS}‘(?=\S)([^‘’]*(?:(?<=\w)’(?=\w)[^‘’]*){{0,50}})’{_CLOSES}
    | {_OPENS}'(?=\S)([^'\n]*(?:(?<=\w)'(?=\w)[^'\n]*){{0,50}})(?<=\S)'{_CLOSES}
    """,
    re.VERBOSE,
)


def quotations(text: str) -> list[tuple[str, str]]:
    """Return each quotation of a clean text: with its quotation marks, and without them."""
    return [(found.group(), found[found.lastindex or 0]) for found in _QUOTATION.finditer(text)]
