"""The main query of a page: of what it asks the database, what takes longest."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState

from refine.extensions import db
from refine.extensions.statements import APART

Work = Callable[[], Any]

_TIMES = 5


class _Sent(NamedTuple):
    """A statement that was sent: its text, how long it took, and what asks the same again."""

    text: str
    seconds: float
    again: Work


def main_query(ask: Work, bare: Work) -> Work:
    """Return what carries out the main query of ``ask`` as ``ask`` does, and fetches its rows.

    What ``bare`` sends too does not count.
    """
    taken: dict[tuple[int, str], list[_Sent]] = defaultdict(list)
    with _one_by_one():
        shared = {sent.text for sent in _sent_by(bare)}
        for _ in range(_TIMES):
            for place, sent in enumerate(_sent_by(ask)):
                if sent.text not in shared:
                    taken[place, sent.text].append(sent)
    if not taken:
        return lambda: None
    longest = max(
        taken.values(), key=lambda times: statistics.median(sent.seconds for sent in times)
    )
    return longest[-1].again


@contextmanager
def _one_by_one() -> Iterator[None]:
    """Have statements sent alone that pages send in one trip."""
    db.engine.update_execution_options(**{APART: True})
    try:
        yield
    finally:
        db.engine.update_execution_options(**{APART: False})


def _sent_by(work: Work) -> list[_Sent]:
    with _noted() as sent:
        work()
    return sent


@contextmanager
def _noted() -> Iterator[list[_Sent]]:
    sent: list[_Sent] = []
    began, is_for_old_object = 0.0, False

    def ask(state: ORMExecuteState) -> None:
        nonlocal is_for_old_object
        is_for_old_object = state.is_column_load

    def begin(*_: Any) -> None:
        nonlocal began
        began = time.perf_counter()

    def end(_connection: Any, _cursor: Any, text: str, values: Any, context: Any, _: Any) -> None:
        nonlocal is_for_old_object
        took, as_text = time.perf_counter() - began, is_for_old_object
        sent.append(_Sent(text, took, _again(text, values, context, as_text=as_text)))
        is_for_old_object = False

    listeners = (
        (db.session, "do_orm_execute", ask),
        (db.engine, "before_cursor_execute", begin),
        (db.engine, "after_cursor_execute", end),
    )
    for target, name, listener in listeners:
        event.listen(target, name, listener)
    try:
        yield sent
    finally:
        for target, name, listener in listeners:
            event.remove(target, name, listener)


def _again(text: str, values: Any, context: Any, *, as_text: bool) -> Work:
    """Return what asks the same: for objects, if the page asked for objects.

    ``as_text``: the page asked for more of an object that it had, which is not there by then.
    """
    query = context.invoked_statement
    if query is None or as_text:
        return lambda: db.session.connection().exec_driver_sql(text, values).all()
    given = context.compiled_parameters[0]
    required = {name: given[name] for name, each in context.compiled.binds.items() if each.required}
    return lambda: db.session.execute(query, required).all()
