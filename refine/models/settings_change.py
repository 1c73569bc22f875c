"""Changes of settings, as audit records keep them."""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from refine.errors import InvalidValue

Changes = dict[str, list[Any]]


def require_allowed(fields: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise InvalidValue if one of the fields is not among those that may be set this way."""
    if forbidden := [field for field in fields if field not in allowed]:
        raise InvalidValue(f"{forbidden[0]} cannot be set here")


def set_fields(row: object, fields: Mapping[str, Any]) -> Changes:
    """Set the fields of the row; return those that changed, each as [before, after].

    Fractional numbers are given as text, because records hold no floats.
    """
    before = {field: getattr(row, field) for field in fields}
    for field, value in fields.items():
        setattr(row, field, value)
    after = {field: getattr(row, field) for field in fields}
    return {
        field: [_as_text(before[field]), _as_text(after[field])]
        for field in fields
        if before[field] != after[field]
    }


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, float | Decimal) else value
