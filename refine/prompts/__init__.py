"""The texts that models are given: Jinja files; memory text is always a value, never a template."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_FOLDER = Path(__file__).parent

# Line breaks that JSON leaves as they are.
_LINE_BREAKS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})

# However a model may read it: in capitals, with spaces.
_END_OF_STYLE = re.compile(r"<(\s*/\s*style)", re.IGNORECASE)

_environment = Environment(
    loader=FileSystemLoader(_FOLDER),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  (the reader is a model, not a browser)
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(name: str, **values: Any) -> str:
    return _environment.get_template(f"{name}.md.j2").render(**values).strip()


@cache
def source(name: str) -> str:
    """Return the unfilled text of ``<name>.md.j2``: about as long as the filled one."""
    return (_FOLDER / f"{name}.md.j2").read_text(encoding="utf-8")


def as_line(value: Any) -> str:
    """Return a JSON value in one line, whatever line breaks its texts hold."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return line.translate(_LINE_BREAKS)


def as_entry(entry: Mapping[str, Any]) -> str:
    """Return a ledger entry in one line: its content under a heading, ``7 2026-03-01 12 voice``."""
    flag = ["constitutional"] if entry["constitutional"] else []
    heading = (entry["id"], entry["date"], entry["tokens"], *flag, *entry["tags"])
    return as_line({" ".join(map(str, heading)): entry["content"]})


def as_block(words: str) -> str:
    """Escape an agent's own words, so that they cannot close the ``<style>`` around them."""
    return _END_OF_STYLE.sub(r"<\\\1", words)


@cache
def default_prompt(field: str) -> str:
    return render(f"default_{field}")


@cache
def version() -> str:
    """Return a short hash of all prompt files: which wording a session was asked with."""
    texts = b"".join(path.read_bytes() for path in sorted(_FOLDER.glob("*.j2")))
    return hashlib.sha256(texts).hexdigest()[:12]
