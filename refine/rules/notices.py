"""What people can be told of by mail, and who may be."""

import tomllib
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    choice: str
    begun: str
    path: str
    level: str
    usual: bool
    over: str | None = None


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KINDS = {name: Kind(**words) for name, words in _TABLE.items()}


def offered(role: str, *, site_admin: bool) -> list[str]:
    """Return the kinds of which a user of this role may be told."""
    levels = {"viewer", role, "site admin" if site_admin else role}
    return [name for name, kind in KINDS.items() if kind.level in levels]


def usual(role: str) -> list[str]:
    """Return of which such a user is told who chose nothing, if it is offered to them."""
    of = [name for name, kind in KINDS.items() if kind.usual]
    return [name for name in of if role == "admin" or KINDS[name].level == "site admin"]
