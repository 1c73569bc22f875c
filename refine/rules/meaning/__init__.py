"""Whether an edit keeps what memories say: a check in code, of words alone."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from heapq import nlargest

from refine.rules.meaning.changing import changed
from refine.rules.meaning.keeping import Keeping, have_a_subject, left_out, nearest
from refine.rules.meaning.ledger import Ledger as Ledger
from refine.rules.meaning.objections import Objection as Objection
from refine.rules.meaning.objections import details_lost as details_lost
from refine.rules.meaning.objections import refusal as refusal
from refine.rules.meaning.reading import language_of

_NEWEST = 3


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
    language = language_of("\n".join((*sources.values(), content or "")))
    readings = {id_: ledger.read(text, language) for id_, text in sources.items()}
    result = ledger.read(content, language) if content is not None else None
    untouched = [(id_, reading) for id_, reading in readings.items() if id_ not in own]
    still_said = said_earlier(ledger, sources, originals, share)
    earlier = [(id_, ledger.read(text, language)) for id_, text in still_said]
    found: list[Objection] = []
    for id_, original in (*untouched, *earlier):
        keeping = Keeping(original, ledger, share, is_deletion=result is None)
        lacking = left_out(keeping, result, readings)
        found += [each._replace(memory_id=id_) for each in lacking]
    if result is not None:
        dates = {f"#{key}" for each in months for key in (each, each[:4], f"-{each[4:]}")}
        found += changed([*readings.values()], result, ledger, dates, [each for _, each in earlier])
    return list(dict.fromkeys(found))


def is_said(original: str, texts: Iterable[str], share: Decimal) -> bool:
    ledger = Ledger()
    keeping = Keeping(ledger.read(original), ledger, share, is_deletion=False)
    return any(keeping.is_carried_by(ledger.read(text)) for text in texts)


def said_earlier(
    ledger: Ledger, sources: Mapping[int, str], originals: Iterable[str], share: Decimal
) -> Iterator[tuple[int, str]]:
    """Yield the originals that memories still say, each with the id of one that does."""
    readings = {id_: ledger.read(text) for id_, text in sources.items()}
    for text in dict.fromkeys(originals):
        keeping = Keeping(ledger.read(text), ledger, share, is_deletion=False)
        carriers = (id_ for id_, each in readings.items() if keeping.is_carried_by(each))
        if (id_ := next(carriers, None)) is not None:
            yield id_, text


def likely_carriers(ledger: Ledger, text: str, without: Collection[int]) -> list[int]:
    """Return the ids of the few memories that say most of a text, the likeliest first.

    Where none has its words, the newest: they may say it in another language.
    """
    keeping = Keeping(ledger.read(text), ledger, Decimal(1), is_deletion=True)
    shares = {id_: keeping.rough_share(each) for id_, each in nearest(keeping, without)}
    likely = [id_ for id_, share in shares.items() if share >= max(shares.values()) / 2]
    return likely or nlargest(_NEWEST, ledger.texts.keys() - set(without))


def speak_of_the_same(ledger: Ledger, one: str, other: str) -> bool:
    """Tell whether two texts have enough in common for the ``other`` to replace the ``one``.

    Names in common are not enough, unless one of them is spelt in another way.
    """
    language = language_of(f"{one}\n{other}")
    return have_a_subject(ledger.read(one, language), ledger.read(other, language), ledger)
