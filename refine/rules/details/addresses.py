"""URLs, e-mail addresses, handles, tags, paths, files and domains."""

import re
from functools import cache

from refine.rules.details.folding import fold
from refine.rules.details.tokens import UNSPACED

# Cheap to look for: without one of these a text holds no address.
_HINT = re.compile(r"[@#/\\]|\w\.\w")
_ENDINGS = (
    "com|org|net|edu|gov|info|io|dev|app|ai|eu|de|fr|es|pl|ru|ua|cz|gr|tr|jp|cn|kr|uk|ch|at|it|nl|se"
    "|fi|dk|pt|br|us|xyz|py|js|ts|tsx|jsx|md|txt|pdf|docx?|xlsx?|pptx?|csv|json|ya?ml|toml|ini|html?"
    "|css|png|jpe?g|gif|svg|mp[34]|wav|zip|gz|tar|exe|sh|rs|go|java|cpp|sql|db|log|env"
)
_BODY = rf"[^\s<>|\"“”„«»、。،؛؟{UNSPACED}]"
# Letters and digits, in scripts with spaces: Chinese text may follow without a blank.
_LETTER = rf"[^\W{UNSPACED}]"
_LABEL = rf"{_LETTER}(?:{_LETTER}|-){{0,62}}"
# A host or file, whatever its ending: in lower case, because "end.The" begins a sentence.
_NAME = r"(?-i:(?=[0-9-]{0,62}[a-z])(?:[a-z0-9][a-z0-9-]{1,62}\.){1,8}[a-z]{2,24})"
_ADDRESS = rf"""
      (?:(?<![a-z0-9])[a-z][a-z0-9+.-]{{1,15}}://|mailto:|(?<![\w.])www\.(?=\w)){_BODY}{{1,2000}}
    | (?<!{_LETTER})(?<![.+-])(?:{_LETTER}|[.+-]){{1,64}}@{_LABEL}(?:\.{_LABEL}){{1,8}}
    | (?<!{_LETTER})(?<!@)@\w(?:[\w.-]{{0,60}}\w)?
    | (?<![\w\#])\#(?=[^\W\d_])[\w-]{{1,100}}
    | (?<!{_LETTER})(?<![./~\\])(?:[a-z]:[\\/]|~/|\.{{1,2}}/|/(?=[\w.]{{2}})|\\\\)
      (?:{_LETTER}|[.@%+~\\/-]){{1,300}}
    | (?<!{_LETTER})(?<![./@-])(?:{_LABEL}[./]){{1,8}}(?:{_ENDINGS})(?!{_LETTER})
      (?:/{_BODY}{{0,500}})?
    | (?<!{_LETTER})(?<![./@-]){_NAME}(?!{_LETTER})(?:/{_BODY}{{0,500}})?
    | (?<!{_LETTER})(?<![./@-])(?=[\w-]{{0,62}}[^\W\d_])(?:{_LABEL}/){{2,20}}{_LABEL}
"""
_DECORATION = re.compile(r"^(?:[a-z][a-z0-9+.-]*:/{2,3}|mailto:)?(?:www\.)?", re.IGNORECASE)
_TRAILING = ".,;:!?…'’)]}>*_/\\-"
# Stands where an address was: no part of a word.
_PLACE = " \ufffc "


def take_addresses(text: str) -> tuple[list[str], str]:
    """Return the addresses of a clean text as written, and the text without them."""
    if _HINT.search(text) is None:
        return [], text
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        address = match.group().rstrip(_TRAILING)
        if not address:
            return match.group()
        found.append(address)
        return _PLACE + match.group()[len(address) :]

    return found, _address().sub(take, text)


@cache
def _address() -> re.Pattern[str]:
    # when it is first needed: compiling takes 80 ms, and most processes never look for addresses
    return re.compile(_ADDRESS, re.VERBOSE | re.IGNORECASE)


def canonical(address: str) -> str:
    """Return the form in which writings of one address are equal: no scheme, no ``www.``."""
    return fold(_DECORATION.sub("", address).rstrip(_TRAILING).replace("\\", "/"))


def parts(address: str) -> set[str]:
    """Return what a canonical address also mentions: its host, its file's name."""
    if address[:1] in "@#":
        return set()
    return {address.partition("/")[0], address.rpartition("/")[2]} - {"", address}
