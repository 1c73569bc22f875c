"""The model of all agents: a real HTTP server, whose answers the dice of a seed decide."""

import json
import random
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.factories import text_of
from tests.scripted_model import Answer, ScriptedModel

_ID = re.compile(r'"id": ?(\d+)')
# Messages of a conversation after which a session is completed.
_LONG = 10


class PlayedModel(ScriptedModel):
    """Answers whatever it is asked; ``dice`` returns those of the actor who asks.

    ``instead`` may answer something else, from the thread of the request.
    """

    def __init__(self, dice: Callable[[], random.Random]) -> None:
        super().__init__()
        self.dice = dice
        self.instead: Callable[[Answer], Answer] = lambda usual: usual
        self._lock = threading.Lock()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        played, scripted = self, super()._handler()

        class Handler(scripted):  # type: ignore[misc, valid-type]
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with played._lock:
                    played.requests = [asked]
                    played._play(asked)
                    answer = played._script.popleft()
                played.instead(answer)(self)

        return Handler

    def _play(self, asked: dict[str, Any]) -> None:
        """Script the answer to this request."""
        dice, said = self.dice(), asked["messages"]
        if not any(each["role"] == "assistant" for each in said):
            self.say("Yes." if dice.random() < 0.93 else "No, not now.")
        elif len(said) > _LONG or dice.random() < 0.1:
            self.call("complete", summary="done")
        elif dice.random() < 0.05:
            self.say("I think about it.")
        else:
            words = "\n".join(str(each.get("content") or "") for each in said)
            ids = sorted({int(id_) for id_ in _ID.findall(words)}) or [1]
            self.calls(*(_call(dice, ids) for _ in range(dice.choice([1, 1, 2, 3]))))


def _call(dice: random.Random, ids: list[int]) -> dict[str, Any]:
    """One call of the tool, mostly an edit of memories that were shown."""
    one, other = dice.choice(ids), dice.choice(ids)
    return dice.choice(
        [
            {"action": "update", "id": one, "content": text_of(dice.choice([18, 22, 25]))},
            {"action": "delete", "id": one},
            {
                "action": "consolidate",
                "ids": [one, other],
                "content": text_of(dice.choice([20, 45])),
            },
            {"action": "protect", "id": one},
            {"action": "search", "query": "abc"},
        ]
    )
