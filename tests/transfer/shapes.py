"""Files as other programs write them, and what a person would expect to be kept of each."""

import json
from typing import Any, NamedTuple


class Shape(NamedTuple):
    format_: str
    content: str | bytes
    kept: tuple[tuple[str | None, str], ...]  # the day, and the text
    left_out: int = 0
    name: str = "file.json"


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


ANNA = {"name": "Anna", "entityType": "Person", "observations": ["Sails a sloop", "Fears geese"]}
BOAT = {"name": "The sloop", "observations": ["Leaks a little"]}
OWNS = {"from": "Anna", "to": "The sloop", "relationType": "owns"}
OF_ANNA = ((None, "Anna (Person): Sails a sloop"), (None, "Anna (Person): Fears geese"))
OF_BOAT = (None, "The sloop: Leaks a little")

DAY = "2025-04-01"
FACT = {"id": "9d0f", "memory": "Sails on Sundays", "created_at": f"{DAY}T08:00:00Z"}
SAILS = ((DAY, "Sails on Sundays"),)

NOTE = """---
created: 2025-04-01
tags: [voice]
---
# Notes

Anna sails,
in all winds.

## People
- **Bo**: allergic to nuts
  - carries a pen
* [x] write to Cy

### 2025-05-02
1. The mast was mended

Harbour
-------
```sh
make fast

```
<!-- nobody
reads this -->
**At night**

The lamp is lit.
"""

CLAUDE = "**Work**\n\nRuns a ferry.\n\n**Hobbies**\n\n- Sails\n- Knits"
MAPPING = {
    "a": {"message": {"recipient": "all", "content": {"parts": ["Hello"]}}},
    "b": {
        "message": {
            "recipient": "bio",
            "create_time": 1743494400.5,
            "content": {"content_type": "text", "parts": ["User sails on Sundays."]},
        }
    },
    "c": {"message": None},
}
ITEM = {"namespace": ["memories", "anna"], "key": "1", "created_at": f"{DAY}T08:00:00Z"}
ENTRY = {"keys": ["sloop", "boat"], "content": "The sloop is {{char}}'s.", "enabled": True}
STORED = {"memory_store_id": "s", "path": "/people.md", "created_at": f"{DAY}T08:00:00Z"}

SHAPES = {
    "mcp lines": Shape(
        "mcp", lines({"type": "entity", **ANNA}, BOAT, OWNS), (*OF_ANNA, OF_BOAT), 1
    ),
    "mcp list": Shape("mcp", json.dumps([ANNA, BOAT], indent=1), (*OF_ANNA, OF_BOAT)),
    "mcp read_graph": Shape(
        "mcp", json.dumps({"entities": [ANNA, BOAT], "relations": [OWNS]}), (*OF_ANNA, OF_BOAT), 1
    ),
    "mcp observations as objects": Shape(
        "mcp",
        lines(
            {
                "_type": "entity",
                "name": "Anna",
                "entityType": "default",
                "observations": [
                    {"text": "Sails a sloop", "timestamp": f"{DAY}T10:00:00Z"},
                    {"content": "Fears geese"},
                ],
                "_savedAt": "2025-06-01T00:00:00Z",
            }
        ),
        ((DAY, "Anna: Sails a sloop"), ("2025-06-01", "Anna: Fears geese")),
    ),
    "mcp UTF-16": Shape("mcp", lines(ANNA, BOAT).encode("utf-16"), (*OF_ANNA, OF_BOAT)),
    "mcp after a mark": Shape("mcp", lines(ANNA, BOAT).encode("utf-8-sig"), (*OF_ANNA, OF_BOAT)),
    "mem0 Python": Shape("mem0", json.dumps({"results": [FACT], "relations": [OWNS]}), SAILS, 1),
    "mem0 nested": Shape("mem0", json.dumps({"results": {"results": [FACT]}}), SAILS),
    "mem0 lines": Shape(
        "mem0", lines(FACT, FACT | {"id": "2", "memory": "x"}), (*SAILS, (DAY, "x"))
    ),
    "mem0 Node": Shape(
        "mem0",
        json.dumps(
            [
                {"memory": "Sails", "createdAt": f"{DAY}T08:00:00.000Z", "userId": "anna"},
                {"memory": "Sails", "createdAt": "2025-04-02T08:00:00.000Z", "userId": "bo"},
                {"memory": "Sinks", "userId": "bo", "isDeleted": True},
            ]
        ),
        ((DAY, "anna: Sails"), ("2025-04-02", "bo: Sails")),
        1,
    ),
    "mem0 Qdrant": Shape(
        "mem0",
        json.dumps({"result": {"points": [{"id": 1, "payload": {"data": "Sails", "date": DAY}}]}}),
        ((DAY, "Sails"),),
    ),
    "mem0 milliseconds": Shape(
        "mem0",
        json.dumps({"memories": [{"text": "Sails", "timestamp": 1743494400123}]}),
        ((DAY, "Sails"),),
    ),
    "Claude": Shape(
        "claude",
        json.dumps(
            [
                {
                    "conversations_memory": CLAUDE,
                    "project_memories": {"0f": "Builds a mast."},
                    "account_uuid": "a",
                }
            ]
        ),
        (
            (None, "Work: Runs a ferry."),
            (None, "Hobbies: Sails"),
            (None, "Hobbies: Knits"),
            (None, "Builds a mast."),
        ),
    ),
    "ChatGPT": Shape(
        "chatgpt",
        json.dumps([{"title": "A", "mapping": MAPPING}, {"title": "B", "mapping": {}}]),
        ((DAY, "User sails on Sundays."),),
        1,
    ),
    "LangGraph": Shape(
        "langgraph",
        lines(
            {**ITEM, "value": {"kind": "Memory", "content": {"content": "Sails"}}},
            {**ITEM, "namespace": ["memories", "bo"], "value": {"data": "Sails"}},
            {**ITEM, "namespace": ["memories", "bo"], "value": {"boat": "sloop", "year": 1990}},
            {"prefix": "memories.cy", "key": "4", "value": "Knits"},
        ),
        (
            (DAY, "anna: Sails"),
            (DAY, "bo: Sails"),
            (DAY, "bo: boat: sloop; year: 1990"),
            (None, "cy: Knits"),
        ),
    ),
    "Anthropic's stores": Shape(
        "stores",
        json.dumps({"data": [{**STORED, "content": "- Anna sails\n- Bo knits"}, STORED]}),
        ((DAY, "people: Anna sails"), (DAY, "people: Bo knits")),
        1,
    ),
    "SillyTavern": Shape(
        "lorebook",
        json.dumps(
            {
                "entries": {
                    "0": {"key": ["sloop"], "comment": "The boat", "content": "Leaks."},
                    "1": {"key": ["mast"], "comment": "", "content": "Is tall."},
                    "2": {"key": ["oar"], "content": "Is lost.", "disable": True},
                }
            }
        ),
        ((None, "The boat: Leaks."), (None, "mast: Is tall.")),
        1,
    ),
    "character card": Shape(
        "lorebook",
        json.dumps(
            {
                "spec": "chara_card_v2",
                "data": {
                    "name": "Anna",
                    "description": "{{char}} sails.",
                    "first_mes": "Ahoy!",
                    "character_book": {"entries": [ENTRY]},
                },
            }
        ),
        ((None, "Anna, description: Anna sails."), (None, "sloop: The sloop is {{char}}'s.")),
        1,
    ),
    "JSON Lines": Shape(
        "jsonl",
        lines({"text": "Sails", "date": DAY, "kind": "hobby"}, {"content": "Knits"}),
        ((DAY, "Sails"), (None, "Knits")),
    ),
    "CSV": Shape(
        "csv",
        'date;subject;text\n2025-04-01;Anna;"Sails,\nand knits"\n;;Rows\n',
        ((DAY, "Anna: Sails,\nand knits"), (None, "Rows")),
        name="table.csv",
    ),
    "Markdown": Shape(
        "markdown",
        NOTE,
        (
            (DAY, "Anna sails,\nin all winds."),
            (DAY, "People: Bo: allergic to nuts\n- carries a pen"),
            (DAY, "People: [x] write to Cy"),
            ("2025-05-02", "People: The mast was mended"),
            (DAY, "Harbour: ```sh\nmake fast\n\n```"),
            (DAY, "Harbour / At night: The lamp is lit."),
        ),
        name="notes.md",
    ),
}
