"""The tool ``self_authoring``: an agent reads and writes its own settings."""

from typing import Any

from refine.errors import InvalidValue
from refine.models import Agent
from refine.models.agent import AUTHORED_FIELDS, configuring
from refine.tools.results import Result, error, invalid, unknown_parameter
from refine.tools.transaction import in_one_call

ALLOWED_ACTIONS = ("view", "update")
DEFAULT_WORD = "default"

DEFINITION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "self_authoring",
        "description": (
            "View or update one of your own settings. The value `default` sets it back to the "
            "default. `reflection_prompt` says what to keep of a conversation, "
            "`memory_reflection_prompt` how to look back over your journal: one of your own also "
            "turns your daily reflection on, and `default` turns it off."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": list(ALLOWED_ACTIONS)},
                "field": {"type": "string", "enum": list(AUTHORED_FIELDS)},
                "value": {
                    "type": "string",
                    "description": "update: the new value; view: empty.",
                },
            },
            "required": ["action", "field", "value"],
            "additionalProperties": False,
        },
    },
}


_PARAMETERS = tuple(DEFINITION["function"]["parameters"]["properties"])


class SelfAuthoringTool:
    """The tool for one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def execute(
        self, /, action: object = None, field: object = None, value: object = None, **unknown: Any
    ) -> Result:
        """View or update one field and commit; return ``config``, or an ``error``."""
        if unknown:
            return _refusal(unknown_parameter("self_authoring", _PARAMETERS))
        if action not in ALLOWED_ACTIONS:
            return _refusal(_not_allowed("action", action))
        if field not in AUTHORED_FIELDS:
            return _refusal(_not_allowed("field", field))
        if action == "view":
            return in_one_call(lambda: self._viewed(str(field)))
        return self._update(str(field), value)

    def _viewed(self, field: str) -> Result:
        value, is_default = self._agent.effective(field)
        return {**self._config("view", field, value), "is_default": is_default}

    def _update(self, field: str, value: object) -> Result:
        if value is None or (isinstance(value, str) and not value.strip()):
            return _refusal("value required for update")
        try:
            return in_one_call(lambda: self._authored(field, value))
        except InvalidValue as fault:
            return error(str(fault))

    def _authored(self, field: str, value: object) -> Result:
        configuring.author(self._agent, field, None if _is_default(value) else value)
        return self._config("update", field, self._agent.effective(field)[0])

    def _config(self, action: str, field: str, value: object) -> Result:
        return {
            "type": "config",
            "action": action,
            "field": field,
            "value": value,
            "agent": self._agent.name,
        }


def _is_default(value: object) -> bool:
    return isinstance(value, str) and value.strip().casefold() == DEFAULT_WORD


def _not_allowed(name: str, value: object) -> str:
    return f"{name} is required" if value is None else invalid(name, value)


def _refusal(message: str) -> Result:
    return error(
        message, allowed_actions=list(ALLOWED_ACTIONS), allowed_fields=list(AUTHORED_FIELDS)
    )
