"""An agent brings memories from elsewhere, and takes all of them out."""

from datetime import datetime
from typing import Any

from tests import factories
from tests.api.conftest import program_of
from tests.transfer.files import memories, read

TEXT = "Bo knits\n\n- and sews\n# all day\n---\n```\nin a fence that never ends"


def page(*rows: dict[str, Any], source: str = "mem0") -> dict[str, Any]:
    return {"source": source, "rows": list(rows)}


def test_each_row_of_a_page_is_told_what_became_of_it(app):
    own = program_of(app, factories.agent("here already"))
    rows = (
        {"content": "Sails", "subject": "Anna", "created_at": 1743494400, "source_id": "1"},
        {"content": "Sails", "subject": "Bo", "memory_type": "journal", "tags": ["voice"]},
        {"content": "Here already"},
        {"content": "Sails", "created_at": "some day"},
        {"content": " "},
    )

    done = own.post("/imports", json=page(*rows))
    again = own.post("/imports", json=page(*rows, {"content": "Knits", "source_id": "1"}))

    assert done.json["added"] == 2
    assert [row["status"] for row in done.json["rows"]] == [
        *("added", "added", "already_present", "invalid", "invalid"),
    ]
    assert done.json["rows"][3]["detail"].startswith("rows[3] is not a time")
    assert [row["status"] for row in again.json["rows"]] == [
        *["already_present"] * 3,
        *("invalid", "invalid", "conflicting"),
    ]
    kept = {each["content"]: each for each in own.get("/memories").json["memories"]}
    assert kept.keys() == {"here already", "Anna: Sails", "Bo: Sails"}
    assert kept["Anna: Sails"]["created_at"].startswith("2025-04-01T08:00:00")
    assert (kept["Bo: Sails"]["memory_type"], kept["Bo: Sails"]["tags"]) == ("journal", ["voice"])


def test_a_page_is_one_record_and_names_no_source_of_refine_itself(app):
    agent = factories.agent()
    own = program_of(app, agent)

    own.post("/imports", json=page({"content": "a"}, {"content": "b"}))
    refused = [
        own.post("/imports", json=page({"content": "c"}, source=name))
        for name in ("refine", "note")
    ]

    (record,) = [each for each in factories.records(agent) if each.action == "memory_imported"]
    assert (record.data["added"], record.data["source"]) == (2, "mem0")
    assert [each.status_code for each in refused] == [422, 422]


def test_what_is_exported_can_be_imported_with_its_days(app):
    agent = factories.agent()
    for day, text in (
        ("2025-04-01", "Anna sails"),
        ("2025-04-02", TEXT),
        ("2025-04-03", "and so on"),
    ):
        factories.memory(agent, text, created_at=datetime.fromisoformat(f"{day}T00:00:00Z"))
    factories.memory(agent, "gone").discard()
    own, other = program_of(app, agent), program_of(app, factories.agent())

    as_rows = own.get("/export").json
    as_text = own.get("/export", headers={"Accept": "text/markdown"}).text
    other.post("/imports", json={"source": "mem1", **as_rows})

    assert as_text.startswith("# Core\n\n## 2025-04-01\n\n- Anna sails\n")
    taken = [(row.created_at.date().isoformat(), row.content) for row in memories(read(as_text))]
    assert taken == [
        ("2025-04-01", "Anna sails"),
        ("2025-04-02", TEXT),
        ("2025-04-03", "and so on"),
    ]
    there = [(row["created_at"], row["content"]) for row in other.get("/export").json["rows"]]
    assert there == [(row["created_at"], row["content"]) for row in as_rows["rows"]]
