"""Files as other programs write them, and what a person would expect to be kept of each."""

import base64
import json
import zlib
from typing import Any, NamedTuple


class Shape(NamedTuple):
    format_: str
    content: str | bytes
    kept: tuple[tuple[str | None, str], ...]  # the day, and the text
    left_out: int = 0
    name: str = "file.json"


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def picture(**texts: bytes) -> bytes:
    """A PNG with these texts."""
    chunks = {b"IHDR": b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"}
    parts = [*chunks.items(), *((b"tEXt", b"%s\0%s" % (k.encode(), v)) for k, v in texts.items())]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4) + type_ + data + zlib.crc32(type_ + data).to_bytes(4)
        for type_, data in (*parts, (b"IEND", b""))
    )


def packed(card: Any) -> bytes:
    return base64.b64encode(json.dumps(card).encode())


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

CLAUDE = "**Work**\n\nRuns a ferry.\n\n**Hobbies**\n\n- Sails\n- Knits\n\n*Lately*\n\nPaints."
# What people copy from a page of saved memories, or from a model that is asked for them.
COPIED = """# MEMORY.md - Long-term memory

User sails on Sundays.
User has two geese.

[2025-04-01] - Knits
[unknown] - Paints
(2025-05-02) Mended the mast
• Fears owls

## Tuesday, April 1st, 2025: harbour

We slept in the harbour
and rose late.

02.04.2025
Sailed home.

- Bo
\t- paints

```
[2025-04-03] - Rowed
[2025-04-04] - Swam
```
"""
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
CARD = {
    "spec": "chara_card_v3",
    "data": {
        "name": "Anna",
        "description": "{{char}} sails.",
        "first_mes": "Ahoy!",
        "character_book": {"entries": [ENTRY]},
    },
}
OF_CARD = ((None, "Anna, description: Anna sails."), (None, "sloop: The sloop is Anna's."))
BLOCK = {"id": "block-1", "label": "human", "value": "Sails", "limit": 5000}
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
            (None, "Hobbies / Lately: Paints."),
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
    "character card": Shape("lorebook", json.dumps(CARD), OF_CARD, 1),
    "character card in a picture": Shape(
        "lorebook",
        picture(chara=packed({"name": "Old", "first_mes": ""}), ccv3=packed(CARD)),
        OF_CARD,
        1,
        "anna.png",
    ),
    "character card, first version": Shape(
        "lorebook",
        json.dumps({"name": "Anna", "first_mes": "", "personality": "Brave", "scenario": " "}),
        ((None, "Anna, personality: Brave"),),
    ),
    "Pygmalion": Shape(
        "lorebook",
        json.dumps({"char_name": "Anna", "char_persona": "Brave", "char_greeting": "Ahoy!"}),
        ((None, "Anna, persona: Brave"),),
        1,
    ),
    "lorebook, third version": Shape(
        "lorebook",
        json.dumps({"spec": "lorebook_v3", "data": {"entries": [ENTRY]}}),
        ((None, "sloop: The sloop is {{char}}'s."),),
    ),
    "mcp Neo4j": Shape(
        "mcp",
        json.dumps({"entities": [{"name": "Anna", "type": "Person", "observations": ["Sails"]}]}),
        ((None, "Anna (Person): Sails"),),
    ),
    "mcp without observations": Shape(
        "mcp", lines({**ANNA, "observations": []}, BOAT), (OF_BOAT,), 1
    ),
    "mem0 pgvector": Shape(
        "mem0", lines({"vector": "[0.1]", "payload": {"data": "Sails"}}), ((None, "Sails"),)
    ),
    "Letta blocks": Shape("letta", json.dumps([BLOCK]), ((None, "[human] Sails"),)),
    "Letta agent": Shape(
        "letta",
        json.dumps({"name": "Wren", "memory": {"blocks": [BLOCK]}}),
        ((None, "[human] Sails"),),
    ),
    "ChatGPT tool call": Shape(
        "chatgpt",
        json.dumps(
            [
                {
                    "mapping": {
                        "a": {"message": {"recipient": "bio", "content": {"text": "User sails."}}},
                        "b": {"message": {"recipient": "bio", "content": {"parts": [" "]}}},
                    }
                }
            ]
        ),
        ((None, "User sails."),),
        1,
    ),
    "ChatGPT feedback": Shape(
        "chatgpt",
        json.dumps([{"conversation_id": "c", "rating": "thumbs_up", "content": "{}"}]),
        (),
        1,
    ),
    "LangGraph profile": Shape(
        "langgraph",
        lines({**ITEM, "value": {"content": {"name": "Anna", "likes": ["tea"], "age": None}}}),
        ((DAY, 'name: Anna; likes: ["tea"]'),),
    ),
    "Anthropic folders": Shape(
        "stores",
        json.dumps({"data": [{"type": "memory_prefix", "path": "/a/"}, STORED]}),
        (),
        2,
    ),
    "Refine's rows": Shape(
        "jsonl",
        json.dumps({"rows": [{"content": "Sails", "memory_type": "journal", "created_at": DAY}]}),
        ((DAY, "Sails"),),
    ),
    "LangGraph episode": Shape(
        "langgraph",
        lines({**ITEM, "value": {"content": {"observation": "Rain", "action": "Reefed"}}}),
        ((DAY, "observation: Rain; action: Reefed"),),
    ),
    "texts": Shape("jsonl", json.dumps(["Sails", "Knits"]), ((None, "Sails"), (None, "Knits"))),
    "messages of a conversation": Shape(
        "jsonl",
        lines({"role": "user", "content": "Hello"}, {"text": "Sails"}),
        ((None, "Sails"),),
        1,
    ),
    "JSON objects one after the other": Shape(
        "jsonl",
        "\n".join(json.dumps(row, indent=1) for row in ({"text": "Sails"}, {"text": "Knits"})),
        ((None, "Sails"), (None, "Knits")),
    ),
    "JSON Lines with other names": Shape(
        "jsonl",
        lines(
            {"Text": "Sails", "CreatedAt": "Tue, 01 Apr 2025 08:00:00 GMT", "User ID": "anna"},
            {"Text": "Knits", "text": "Rows", "UserId": "bo"},
        ),
        ((DAY, "anna: Sails"), (None, "bo: Rows")),
    ),
    "CSV of Excel": Shape(
        "csv",
        "\r\nsep=|\r\nDate|Person|Memory\r\n2025/04/01|Anna|Sails\r\n".encode("utf-16"),
        ((DAY, "Anna: Sails"),),
        name="table.csv",
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
    "copied memories": Shape(
        "markdown",
        COPIED,
        (
            (None, "User sails on Sundays."),
            (None, "User has two geese."),
            (DAY, "[2025-04-01] - Knits"),
            (None, "[unknown] - Paints"),
            ("2025-05-02", "(2025-05-02) Mended the mast"),
            (None, "Fears owls"),
            (DAY, "harbour: We slept in the harbour\nand rose late."),
            ("2025-04-02", "harbour: Sailed home."),
            ("2025-04-02", "harbour: Bo\n- paints"),
            ("2025-04-03", "harbour: [2025-04-03] - Rowed"),
            ("2025-04-04", "harbour: [2025-04-04] - Swam"),
        ),
        name="copied.txt",
    ),
}
