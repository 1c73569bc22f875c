"""What people can be told of by mail, and who may be."""

import tomllib
from collections.abc import Collection
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


def wanted(role: str, chosen: Collection[str] | None, *, site_admin: bool) -> list[str]:
    """Return of which the user is told: what they chose, or what is usual for the role."""
    names = offered(role, site_admin=site_admin)
    if chosen is not None:
        return [name for name in names if name in chosen]
    levels = ("site admin",) if role == "viewer" else ("viewer", "admin", "site admin")
    return [name for name in names if KINDS[name].usual and KINDS[name].level in levels]
