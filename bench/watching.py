"""A session whose tool calls are counted by outcome."""

import re
import uuid
from collections import Counter
from functools import partial
from typing import Any

from refine.llm.messages import ToolCall
from refine.models import RefinementSession
from refine.refinement.loop import SessionWorker
from refine.running import work_on
from refine.settings import Settings

_CHANGES = ("consolidate", "update", "delete")
# The words of errors: of calls that cannot be carried out, and of edits that would lose something.
_MALFORMED = re.compile(r"unknown parameter|unknown tool|is required|must be")
_LOSES = re.compile(r"would be lost|would remain")


def watched(session_id: uuid.UUID, settings: Settings) -> Counter[str]:
    """Run a queued session to its end; return how many calls were what.

    ``calls`` are all; ``malformed`` ones could not be carried out as they were written; ``changes``
    are those that consolidate, update or delete; ``refused`` counts the refused ones among them,
    and ``losing`` those refused because details or words would have been lost.
    """
    seen: Counter[str] = Counter()
    make_worker = partial(_WatchedWorker, settings=settings, seen=seen)
    work_on(RefinementSession, session_id, make_worker, _never)
    return seen


def _never() -> bool:
    return False


class _WatchedWorker(SessionWorker):
    """Works as ever, and counts."""

    def __init__(
        self,
        session: RefinementSession,
        lease_token: uuid.UUID,
        settings: Settings,
        seen: Counter[str],
    ) -> None:
        super().__init__(session, lease_token, settings, is_stopping=_never)
        self._seen = seen

    def _carry_out(self, call: ToolCall) -> dict[str, Any]:
        result = super()._carry_out(call)
        is_refused = result["type"] == "error"
        is_change = call.arguments.get("action") in _CHANGES
        self._seen["calls"] += 1
        self._seen["malformed"] += call.problem is not None or _is_malformed(result)
        self._seen["changes"] += is_change
        self._seen["refused"] += is_change and is_refused
        self._seen["losing"] += is_change and bool(_LOSES.search(result.get("error", "")))
        return result


def _is_malformed(result: dict[str, Any]) -> bool:
    return "allowed_actions" in result or bool(_MALFORMED.search(result.get("error", "")))
