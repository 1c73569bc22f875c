"""The files of others in ``static/``: those that ``VENDORED.md`` names, as it names them."""

from hashlib import sha256
from typing import NamedTuple

import pytest

from tests.supply.locked import ROOT

STATIC = ROOT / "static"

# Written for Refine.
OWN = {
    *("film.js", "in_place.js", "left.js", "open.js", "passkey.js", "triage.js", "wall.js"),
    *("refine.css", "icon.svg", "icon-ended.svg", "VENDORED.md"),
}


class Vendored(NamedTuple):
    name: str
    version: str
    origin: str
    licence: str
    digest: str


def vendored() -> list[Vendored]:
    """The rows of the table in VENDORED.md."""
    lines = (STATIC / "VENDORED.md").read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    return [Vendored(*cells) for cells in rows[2:]]


def test_every_file_is_our_own_or_listed() -> None:
    there = {str(file.relative_to(STATIC)) for file in STATIC.rglob("*") if file.is_file()}

    assert there == OWN | {each.name for each in vendored()}


@pytest.mark.parametrize("listed", vendored(), ids=lambda listed: listed.name)
def test_vendored_files_match_their_recorded_hashes(listed: Vendored) -> None:
    """The licence's own text has a section of that page."""
    file = STATIC / listed.name
    assert sha256(file.read_bytes()).hexdigest() == listed.digest
    assert listed.version in listed.name
    assert listed.version in file.read_text()
    assert listed.version in listed.origin
    assert f"\n{listed.licence}\n" in (STATIC / "VENDORED.md").read_text()
