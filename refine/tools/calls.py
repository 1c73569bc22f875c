"""What tools have in common: definitions, errors, and how a call is carried out."""

from collections.abc import Callable, Iterable
from reprlib import repr as short_repr
from typing import Any, ClassVar

from refine.errors import InvalidValue
from refine.outages import in_one_call

Result = dict[str, Any]

# How much of a wrong word is quoted back.
_MAX_QUOTED = 60


def function_definition(
    name: str, description: str, properties: dict[str, Any], required: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return a definition for chat completions; OpenAI's strict mode requires all properties."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def error(message: str, **facts: Any) -> Result:
    return {"type": "error", "error": message, **facts}


def invalid(name: str, value: object) -> str:
    try:
        shown = value if isinstance(value, str) else short_repr(value)
    except ValueError:  # a number of thousands of digits
        shown = "a long number"
    return f"Invalid {name} '{shown[:_MAX_QUOTED]}'"


def missing(name: str, taker: str) -> str:
    return f"{name} is required for {taker}"


def unknown_parameter(taker: str, allowed: Iterable[str]) -> str:
    return f"unknown parameter; {taker} takes: {', '.join(allowed)}"


class Tool:
    """A function that a model may call, by the names of its parameters."""

    name: ClassVar[str]
    required: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()
    _carry_out: Callable[..., Result]

    def execute(self, /, **params: Any) -> Result:
        """Carry out one call and commit; an ``error`` changes nothing."""
        allowed = (*self.required, *self.optional)
        if not params.keys() <= set(allowed):
            return error(unknown_parameter(self.name, allowed))
        for name in self.required:
            if params.get(name) is None:
                return error(missing(name, self.name))
        try:
            return self._in_one_call(lambda: self._carry_out(**params))
        except InvalidValue as fault:
            return error(str(fault))

    def _in_one_call(self, work: Callable[[], Result]) -> Result:
        return in_one_call(work)
