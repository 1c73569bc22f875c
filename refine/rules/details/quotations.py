"""What a text quotes."""

import re

_QUOTATION = re.compile(
    """
      "([^"\\n]{1,2000})" | “([^“”]{1,2000})” | „([^“”„"]{1,2000})[“”"] | «([^«»]{1,2000})»
    | »([^«»]{1,2000})« | 「([^「」]{1,2000})」 | 『([^『』]{1,2000})』 | ‹([^‹›]{1,2000})›
    | (?<!\\w)‘(?=\\S)([^‘’]*(?:(?<=\\w)’(?=\\w)[^‘’]*){0,50})’(?!\\w)
    | (?<!\\w)'(?=\\S)([^'\\n]*(?:(?<=\\w)'(?=\\w)[^'\\n]*){0,50})(?<=\\S)'(?!\\w)
    """,
    re.VERBOSE,
)


def quotations(text: str) -> list[tuple[str, str]]:
    """Return each quotation of a clean text: with its quotation marks, and without them."""
    return [(found.group(), found[found.lastindex or 0]) for found in _QUOTATION.finditer(text)]
