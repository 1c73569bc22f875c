"""The picture of a session: each memory is a bar as wide as its tokens, before above after. It
needs sizes and kinds of edits alone; nothing is opened for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from refine.models import AgentMemory, AuditLog, RefinementSession
from refine.models.ledger.image import Image, images_in, is_kept, mass_of
from refine.models.runs.session.session import LOOP_EDITS
from refine.rules.quantities import plural

_WIDTH, _BAR, _GAP = 1000, 32, 56
# The space before the memories of an edit.
_SPACE = 6
# More unchanged memories, or duplicates, are one bar.
_UNCHANGED_DRAWN, _COPIES_DRAWN = 150, 60
# One bar for all unchanged memories takes at most this share of the width.
_WIDEST = 0.4
# The id under which one bar for many memories stands.
_MANY = 0

_Sizes = Mapping[int, int]
_Span = tuple[float, float]


class Part(NamedTuple):
    """Memories with the same fate, with their tokens by id; ``step``: 0 for unchanged ones."""

    kind: str
    before: _Sizes
    after: _Sizes
    step: int = 0
    # how many memories each bar stands for
    of_many: int = 1

    @property
    def memories(self) -> tuple[int, int]:
        return len(self.before) * self.of_many, len(self.after) * self.of_many

    @property
    def tokens(self) -> tuple[int, int]:
        return sum(self.before.values()), sum(self.after.values())

    @property
    def is_group(self) -> bool:
        return _MANY in self.after

    @property
    def told(self) -> str:
        number, left = self.memories
        noun = ("exact duplicate", None) if self.kind == "duplicate" else ("memory", "memories")
        verbs = {
            "kept": "unchanged",
            "duplicate": "removed",
            "merged": f"merged into {left}",
            "retired": "retired and replaced" if left else "retired",
        }
        return f"{plural(number, *noun)} {verbs.get(self.kind, self.kind)}"


class Drawn(NamedTuple):
    """A part as SVG paths, and how many tokens every prompt holds after its step."""

    part: Part
    before: str
    flow: str
    after: str
    tokens_left: int


class Picture(NamedTuple):
    drawn: Sequence[Drawn]
    memories: tuple[int, int]
    tokens: tuple[int, int]
    # whether the bar of all unchanged memories is shorter than its tokens
    is_shortened: bool
    # the middle of what is free after the session, in percent
    free_x: float
    less: int


def picture_of(
    session: RefinementSession,
    records: Sequence[AuditLog],
    untouched: Sequence[tuple[int, int, bool]] | None,
) -> Picture | None:
    """Return what these edits of the session did, oldest first; None if that is nothing."""
    if session.is_live and session.mass_before is None:
        return None
    edits = _edits([each for each in records if each.action in LOOP_EDITS])
    copies = _copies(session, records, edits)
    changes = [copies, *edits] if copies.before else edits
    if not changes:
        return None
    unchanged = _unchanged(session, changes, untouched or ())
    return _drawn([*unchanged, *(each._replace(step=n) for n, each in enumerate(changes, 1))])


# -- what happened to which memory ----------------------------------------------------------------


def _edits(records: Sequence[AuditLog]) -> list[Part]:
    """Return a part for each edit; those of the same memory are one."""
    edits: list[tuple[dict[int, Image | None], dict[int, Image]]] = []
    for record in records:
        images = {each["id"]: each for each in images_in(record.data)}
        same = [each for each in edits if each[1].keys() & images.keys()]
        place = edits.index(same[0]) if same else len(edits)
        before = {id_: each["before"] for id_, each in images.items()}
        after = {id_: each["after"] for id_, each in images.items()}
        for each in same:
            before, after = before | each[0], each[1] | after
            edits.remove(each)
        edits.insert(place, (before, after))
    return [_part(before, after) for before, after in edits]


def _part(before: Mapping[int, Image | None], after: Mapping[int, Image]) -> Part:
    sources = {id_: mass_of(image) for id_, image in before.items() if image}
    results = {id_: mass_of(image) for id_, image in after.items() if is_kept(image)}
    if any(after[id_]["retired_reason"] for id_ in sources):
        kind = "retired"
    elif not results:
        kind = "deleted"
    elif len(sources) > len(results):
        kind = "merged"
    else:
        kind = "protected" if sources == results else "rewritten"
    return Part(kind, sources, results)


def _copies(session: RefinementSession, records: Sequence[AuditLog], edits: Sequence[Part]) -> Part:
    copies = {
        each["id"]: mass_of(each["before"])
        for record in records
        if record.action == "memory_refinement_dedup"
        for each in images_in(record.data)
        if not is_kept(each["after"])
    }
    number = session.duplicates_removed
    if len(copies) == number <= _COPIES_DRAWN:
        return Part("duplicate", dict(sorted(copies.items())), {})
    before, after = (0, 0) if session.status == "rolled_back" else _tokens(edits)
    tokens = session.saved_tokens - (before - after)
    return Part("duplicate", {_MANY: tokens}, {}, of_many=number)


def sizes() -> ColumnElement[list[tuple[int, int, bool]]]:
    """Select a session's memories that nobody changed since: ids, tokens, whether locked."""
    each = func.jsonb_build_array(AgentMemory.id, AgentMemory.token_estimate, AgentMemory.is_locked)
    untouched = (
        select(func.jsonb_agg(aggregate_order_by(each, AgentMemory.id)))
        .where(
            AgentMemory.agent_id == RefinementSession.agent_id,
            AgentMemory.is_kept_core,
            AgentMemory.recorded_at <= RefinementSession.started_at,
            AgentMemory.updated_at <= func.coalesce(RefinementSession.ended_at, func.now()),
        )
        .scalar_subquery()
    )
    return case((RefinementSession.memories_before <= _UNCHANGED_DRAWN, untouched))


def _unchanged(
    session: RefinementSession, changes: Sequence[Part], untouched: Sequence[tuple[int, int, bool]]
) -> list[Part]:
    edited = [part for part in changes if part.kind != "duplicate"]
    mass = session.mass_after if session.mass_before is None else session.mass_before
    tokens = (mass or 0) - _tokens(edited)[0]
    number = session.memories_at_first - sum(part.memories[0] for part in changes)
    changed = {id_ for part in changes for id_ in (*part.before, *part.after)}
    parts = []
    for kind, is_of_kind in (("locked", True), ("kept", False)):
        those = {id_: n for id_, n, is_locked in untouched if is_locked is is_of_kind}
        known = {id_: n for id_, n in those.items() if id_ not in changed}
        number, tokens = number - len(known), tokens - sum(known.values())
        parts += [Part(kind, known, known)] if known else []
    rest = {_MANY: tokens}
    return [*parts, *([Part("kept", rest, rest, of_many=number)] if number else [])]


def _tokens(parts: Iterable[Part]) -> tuple[int, int]:
    both = [part.tokens for part in parts]
    return sum(before for before, _ in both), sum(after for _, after in both)


# -- where it is drawn ----------------------------------------------------------------------------


def _drawn(parts: Sequence[Part]) -> Picture:
    tokens = _tokens(parts)
    group = sum(part.tokens[0] for part in parts if part.is_group)
    is_shortened = _WIDEST * tokens[0] < group < tokens[0]
    room = _WIDTH - _SPACE * sum(part.step > 0 for part in parts)
    wide = room * _WIDEST / group if is_shortened else room / tokens[0]
    scale = room * (1 - _WIDEST) / (tokens[0] - group) if is_shortened else wide
    x_before = x_after = 0.0
    left, drawn = tokens[0], []
    for part in parts:
        space, units = (_SPACE if part.step else 0), (wide if part.is_group else scale)
        before = _spans(part.before, x_before + space, units)
        after = _spans(part.after, x_after + space, units)
        left += part.tokens[1] - part.tokens[0]
        drawn.append(Drawn(part, _bars(before), _flow(part, before, after), _bars(after), left))
        x_before, x_after = before[-1][1], after[-1][1] if after else x_after
    free_x = round(50 + 50 * x_after / _WIDTH, 1)
    memories = sum(part.memories[0] for part in parts), sum(part.memories[1] for part in parts)
    return Picture(drawn, memories, tokens, is_shortened, free_x, tokens[0] - tokens[1])


def _spans(sizes: _Sizes, x: float, scale: float) -> list[_Span]:
    return list(pairwise([x, *(x + scale * tokens for tokens in accumulate(sizes.values()))]))


def _bars(spans: Sequence[_Span]) -> str:
    return "".join(f"M{a:.1f} 0H{b:.1f}V{_BAR}H{a:.1f}z" for a, b in spans)


def _flow(part: Part, before: list[_Span], after: list[_Span]) -> str:
    """Return a band from each source to its share of what came of it, or into nothing."""
    if not after:
        return "".join(f"M{a:.1f} {_BAR}H{b:.1f}V{_BAR + _GAP // 2}H{a:.1f}z" for a, b in before)
    start, x = before[0][0], after[0][0]
    ratio = (after[-1][1] - x) / (before[-1][1] - start)
    spans = before if part.step else [(start, before[-1][1])]
    return "".join(_band(a, b, x + ratio * (a - start), x + ratio * (b - start)) for a, b in spans)


def _band(a: float, b: float, c: float, d: float) -> str:
    top, middle, bottom = _BAR, _BAR + _GAP // 2, _BAR + _GAP
    left = f"M{a:.1f} {top}C{a:.1f} {middle} {c:.1f} {middle} {c:.1f} {bottom}"
    return f"{left}H{d:.1f}C{d:.1f} {middle} {b:.1f} {middle} {b:.1f} {top}z"
