"""The tool ``self_authoring``: an agent reads and writes its own settings."""

from typing import Any

from refine.errors import InvalidValue
from refine.models import Agent
from refine.models.agent import AUTHORED_FIELDS, configuring
from refine.outages import in_one_call
from refine.tools.calls import Result, error, function_definition, invalid, unknown_parameter

ALLOWED_ACTIONS = ("view", "update")
DEFAULT_WORD = "default"

DEFINITION = function_definition(
    "self_authoring",
    "View or update one of your own settings. The value `default` sets it back to the "
    "default. `reflection_prompt` says what to keep of a conversation, "
    "`memory_reflection_prompt` how to look back over your journal: one of your own also "
    "turns your daily reflection on, and `default` turns it off.",
    {
        "action": {"type": "string", "enum": list(ALLOWED_ACTIONS)},
        "field": {"type": "string", "enum": list(AUTHORED_FIELDS)},
        "value": {"type": "string", "description": "update: the new value; view: empty."},
    },
)


class SelfAuthoringTool:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def execute(
        self, /, action: object = None, field: object = None, value: object = None, **unknown: Any
    ) -> Result:
        """View or update one field and commit; return ``config``, or an ``error``."""
        if unknown:
            allowed = DEFINITION["function"]["parameters"]["properties"]
            return _refusal(unknown_parameter("self_authoring", allowed))
        for name, given, allowed in (
            ("action", action, ALLOWED_ACTIONS),
            ("field", field, AUTHORED_FIELDS),
        ):
            if given not in allowed:
                return _refusal(f"{name} is required" if given is None else invalid(name, given))
        is_blank = value is None or (isinstance(value, str) and not value.strip())
        if action == "update" and is_blank:
            return _refusal("value required for update")
        try:
            return in_one_call(lambda: self._carry_out(str(action), str(field), value))
        except InvalidValue as fault:
            return error(str(fault))

    def _carry_out(self, action: str, field: str, value: object) -> Result:
        if action == "update":
            is_default = isinstance(value, str) and value.strip().casefold() == DEFAULT_WORD
            configuring.author(self._agent, field, None if is_default else value)
        shown, is_default = self._agent.effective(field)
        config = {"action": action, "field": field, "value": shown, "agent": self._agent.name}
        told = {"is_default": is_default} if action == "view" else {}
        return {"type": "config", **config, **told}


def _refusal(message: str) -> Result:
    return error(
        message, allowed_actions=list(ALLOWED_ACTIONS), allowed_fields=list(AUTHORED_FIELDS)
    )
