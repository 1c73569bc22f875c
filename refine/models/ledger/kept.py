"""What a kept core memory is: what sessions work on, and all that the token mass counts."""

from datetime import datetime

from sqlalchemy import ColumnElement, SQLColumnExpression, and_

from refine.models.columns import constant

CORE = constant("core")


def is_kept_core(memory_type: str, discarded_at: object) -> bool:
    """Tell whether these make a kept core memory."""
    return memory_type == "core" and discarded_at is None


def kept_core(
    memory_type: SQLColumnExpression[str], discarded_at: SQLColumnExpression[datetime | None]
) -> ColumnElement[bool]:
    """Return ``is_kept_core`` as an SQL condition."""
    return and_(memory_type == CORE, discarded_at.is_(None))
