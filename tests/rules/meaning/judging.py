"""Judges an edit of memories whose texts are given."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from refine.rules.meaning import LedgerTexts, Objection, objections

SHARE = Decimal("0.65")


def ledger_of(*texts: str) -> LedgerTexts:
    ledger = LedgerTexts()
    ledger.keep_only(dict(enumerate(texts)))
    return ledger


def merged(
    sources: Sequence[str], result: str | None, *kept: str, **fields: Any
) -> list[Objection]:
    """The objections to a text that takes the place of others, where these are kept besides."""
    ledger = ledger_of(*sources, *kept)
    fields.setdefault("share", SHARE)
    found = objections(ledger, dict(enumerate(sources)), result, **fields)
    return [each for each in found if not each.is_slight]


def updated(text: str, result: str, *kept: str, **fields: Any) -> list[Objection]:
    return merged([text], result, *kept, **fields)


def deleted(text: str, *kept: str, **fields: Any) -> list[Objection]:
    return merged([text], None, *kept, **fields)


def kinds(found: Sequence[Objection]) -> set[str]:
    return {each.kind for each in found}
