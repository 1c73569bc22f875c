"""Whether an edit keeps what memories say: a check in code, of words alone."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal

from refine.rules.meaning.changing import changed
from refine.rules.meaning.keeping import Keeping, left_out
from refine.rules.meaning.ledger import Ledger
from refine.rules.meaning.objections import Objection, details_lost, refusal
from refine.rules.meaning.reading import Reading

__all__ = ["Ledger", "Objection", "details_lost", "is_said", "objections", "refusal"]


def objections(
    ledger: Ledger,
    sources: Mapping[int, str],
    content: str | None,
    originals: Iterable[str] = (),
    *,
    share: Decimal,
    own: Collection[int] = (),
    months: Collection[str] = (),
) -> list[Objection]:
    """Return what is wrong with an edit that puts ``content`` (None: nothing) in place of memories.

    ``sources`` are the texts of these memories, which still stand in the ``ledger``; those of
    ``own`` are words of the session itself, which it may take back. ``originals``, what memories
    said earlier, count as far as a source still says it. ``months`` are those in which the sources
    were stored, as 2026-03.
    """
    result = ledger.read(content) if content is not None else None
    readings = {id_: ledger.read(text) for id_, text in sources.items()}
    untouched = [(id_, reading) for id_, reading in readings.items() if id_ not in own]
    earlier = list(_still_said(ledger, readings, originals, share))
    found: list[Objection] = []
    for id_, original in (*untouched, *earlier):
        keeping = Keeping(original, ledger, share, is_deletion=result is None)
        lacking = left_out(keeping, result, readings)
        found += [each._replace(memory_id=id_) for each in lacking]
    if result is not None:
        keys = {key for each in months for key in (each, each[:4], f"-{each[4:]}")}
        said_before = [reading for _, reading in earlier]
        stored = {f"#{key}" for key in keys}
        found += changed(list(readings.values()), result, ledger, stored, said_before)
    return list(dict.fromkeys(found))


def is_said(original: str, texts: Iterable[str], share: Decimal) -> bool:
    ledger = Ledger()
    keeping = Keeping(ledger.read(original), ledger, share, is_deletion=False)
    return any(keeping.is_carried_by(ledger.read(text)) for text in texts)


def _still_said(
    ledger: Ledger, readings: Mapping[int, Reading], originals: Iterable[str], share: Decimal
) -> Iterator[tuple[int, Reading]]:
    for text in dict.fromkeys(originals):
        keeping = Keeping(ledger.read(text), ledger, share, is_deletion=False)
        carriers = (id_ for id_, each in readings.items() if keeping.is_carried_by(each))
        if (id_ := next(carriers, None)) is not None:
            yield id_, keeping.original
