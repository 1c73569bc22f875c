"""Memories that an admin brings along in a file, through the dashboard."""

import json
import tempfile
import time
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from werkzeug.datastructures import FileStorage
from werkzeug.test import TestResponse, encode_multipart

from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, User
from refine.transfer.formats import rows_of
from refine.transfer.importing import import_memories
from refine.web.importing import MAX_ROWS
from refine.web.uploads import LARGEST_FILE_MEGABYTES
from tests import factories, sql
from tests.chains import verify_agent
from tests.transfer.files import fixture, own_file, own_row
from tests.web.conftest import Browser, SignedIn, links_of, person, words_of

MEGABYTE = 1024 * 1024

# What the fixtures' contents, ids and names have in them, and the name of the file.
CONTENTS = ("train", "coffee", "dentist", "bees", "Library", "Welsh", "secret-plan")


@pytest.fixture
def agent(admin: User) -> Agent:
    made: Agent = factories.agent(account=admin.account, name="Ada")
    db.session.commit()
    return made


def path(agent: Agent) -> str:
    return f"/agents/{agent.id}/import"


def sent(file: bytes | str, format_: str = "mem0", **fields: str) -> dict[str, Any]:
    content = file.encode() if isinstance(file, str) else file
    upload = FileStorage(BytesIO(content), "secret-plan.json")
    return {"file": upload, "format": format_, "memory_type": "core", **fields}


def bring(
    dashboard: Browser, agent: Agent, file: bytes | str, *arguments: str, **fields: str
) -> TestResponse:
    return post(dashboard, path(agent), sent(file, *arguments, **fields))


def post(dashboard: Browser, path: str, fields: dict[str, Any], **options: Any) -> TestResponse:
    """Send a form with a file; the test's client by itself would take a temporary one for that."""
    boundary, body = encode_multipart({"csrf_token": dashboard.token(), **fields})
    type_ = f"multipart/form-data; boundary={boundary}"
    return dashboard.post(path, **{"data": body, "content_type": type_, **options})


def rows(*contents: str) -> str:
    return json.dumps([{"memory": content} for content in contents])


def kept(agent: Agent, memory_type: str = "core") -> list[str]:
    db.session.rollback()
    kept = (
        db.session.scalars(agent.ledger.core())
        if memory_type == "core"
        else factories.journal(agent)
    )
    return [memory.content for memory in kept]


def imports(agent: Agent) -> list[AuditLog]:
    db.session.rollback()
    return [log for log in factories.records(agent) if log.action == "memory_imported"]


class TestTheForm:
    def test_is_linked_from_the_agents_page(self, dashboard: Browser, agent: Agent) -> None:
        assert path(agent) in links_of(dashboard.get(f"/agents/{agent.id}").text)

        said = words_of(dashboard.get(path(agent)).text)

        assert "Import memories into Ada" in said
        assert f"up to {LARGEST_FILE_MEGABYTES} MB" in said

    def test_is_refused_to_viewers(self, agent: Agent, admin: User, signed_in: SignedIn) -> None:
        viewer = signed_in(person(account=admin.account, role="viewer"))
        before = sql.untallied()

        answers = [viewer.get(path(agent)), bring(viewer, agent, rows("a"))]

        assert [answer.status_code for answer in answers] == [403, 403]
        assert path(agent) not in links_of(viewer.get(f"/agents/{agent.id}").text)
        assert sql.untallied() == before

    def test_is_not_found_by_other_accounts(self, agent: Agent, signed_in: SignedIn) -> None:
        stranger = signed_in(person())

        answers = [stranger.get(path(agent)), bring(stranger, agent, rows("a"))]

        assert [answer.status_code for answer in answers] == [404, 404]
        assert kept(agent) == []


class TestAnImport:
    @pytest.mark.parametrize(
        ("file", "format_", "count"),
        [
            (fixture("agent-v2.af"), "letta", 2),
            (fixture("agent-v1.af"), "letta", 2),
            (fixture("passages.json"), "letta", 1),
            (fixture("mem0.json"), "mem0", 2),
            (fixture("mcp.jsonl"), "mcp", 5),
            (own_file(own_row(content="the train leaves")), "refine", 1),
        ],
    )
    def test_accepts_every_format_without_showing_content(
        self,
        dashboard: Browser,
        agent: Agent,
        caplog: pytest.LogCaptureFixture,
        file: bytes | str,
        format_: str,
        count: int,
    ) -> None:
        answer = bring(dashboard, agent, file, format_)

        assert answer.status_code == 200
        assert f"{count} {'memory' if count == 1 else 'memories'} imported" in words_of(answer.text)
        assert len(kept(agent)) == count
        assert verify_agent(agent).problem is None
        said = f"{answer.headers}{answer.text}{caplog.text}"
        assert not [word for word in CONTENTS if word in said]

    def test_reports_figures(self, dashboard: Browser, agent: Agent) -> None:
        said = words_of(bring(dashboard, agent, fixture("mem0.json")).text)

        assert "Import result 2 memories imported: 2 core, 0 journal; 16 tokens" in said
        assert (
            "Left out 1 blank Bad rows 2 row 4: has no text in memory, text, data, content "
            "row 5: created_at lies in the future" in said
        )
        assert "Ada now uses 16 / 5,000" in said

    def test_names_at_most_twenty_bad_rows(self, dashboard: Browser, agent: Agent) -> None:
        said = words_of(bring(dashboard, agent, json.dumps([*range(30), {"memory": "a"}])).text)

        assert "row 20: is not an object and 10 more" in said

    def test_uses_the_chosen_type_for_untyped_rows(self, dashboard: Browser, agent: Agent) -> None:
        answer = bring(dashboard, agent, rows("an entry"), memory_type="journal")

        assert "1 memory imported: 0 core, 1 journal" in words_of(answer.text)
        assert kept(agent, "journal")[0] == "an entry"

    def test_takes_one_agent_of_a_file_of_several(self, dashboard: Browser, agent: Agent) -> None:
        file = fixture("agents.af")

        refused = bring(dashboard, agent, file, "letta")
        bring(dashboard, agent, file, "letta", file_agent=" agent-1 ")

        assert refused.status_code == 422
        assert (
            "The file holds 2 agents; choose one by name or id: Rook (agent-0, 2 blocks), "
            "Rook-sleeptime (agent-1, 2 blocks)." in words_of(refused.text)
        )
        assert kept(agent) == [
            "[persona] I am patient with beginners.",
            "[human] Asks to be reminded of the frost.",
        ]

    def test_says_what_is_left_out_and_that_there_are_more_pages(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        said = words_of(bring(dashboard, agent, fixture("mem0-page.json")).text)

        assert "3 memories imported" in said
        assert "Left out 2 deleted at the source" in said
        assert "More pages the file is one page, with 7 of 214 rows; join the rows" in said

    def test_is_recorded_and_told_to_the_agent_once(
        self, dashboard: Browser, agent: Agent, admin: User
    ) -> None:
        bring(dashboard, agent, rows(*(f"memory {number}" for number in range(700))))

        assert [record.data["added"] for record in imports(agent)] == [500, 200]
        assert {record.user_id for record in imports(agent)} == {admin.id}
        assert kept(agent, "journal") == [
            f"{admin.email} imported 700 memories into my memory, from a file in mem0 format."
        ]

    def test_is_refused_alike_whether_or_not_the_agent_keeps_what_the_file_guesses(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        agent.ledger.remember("roses by the wall", "core")
        db.session.commit()
        before = sql.snapshot()

        right, wrong = (
            bring(dashboard, agent, rows(guess))
            for guess in ("roses by the wall", "beans by the wall")
        )

        assert (right.status_code, wrong.status_code) == (409, 409)
        assert words_of(right.text) == words_of(wrong.text)
        assert "Ada already has memories" in words_of(right.text)
        assert sql.snapshot() == before

    def test_is_not_offered_for_an_agent_that_has_memories(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        button = '<button class="primary">Import</button>'
        before = dashboard.get(path(agent)).text
        factories.memory(agent).discard()
        db.session.commit()

        after = dashboard.get(path(agent)).text

        assert button in before
        assert "already has memories" not in words_of(before)
        assert button not in after
        assert "Check only" in after
        assert "already has memories, so you can only check a file here." in words_of(after)

    def test_is_refused_to_an_agent_that_discarded_all_that_it_kept(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        factories.memory(agent, "it was here").discard()
        db.session.commit()

        assert bring(dashboard, agent, rows("it was here")).status_code == 409

    def test_is_refused_to_an_agent_whose_memories_were_moved_to_another(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        agent.ledger.remember("roses by the wall", "core")
        db.session.commit()
        other = factories.agent()
        db.session.commit()
        sql.run(f"UPDATE agent_memories SET agent_id = {other.id}")

        assert bring(dashboard, agent, rows("roses by the wall")).status_code == 409

    def test_says_how_many_rows_repeat_others_of_the_same_file(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        said = words_of(bring(dashboard, agent, rows("a", "b", "a")).text)

        assert "2 memories imported" in said
        assert "Already here 1" in said

    def test_works_for_inactive_agents(self, dashboard: Browser, agent: Agent) -> None:
        agent.active = False
        db.session.commit()

        bring(dashboard, agent, rows("a"))

        assert kept(agent) == ["a"]

    def test_works_for_site_admins_in_every_account(
        self, agent: Agent, signed_in: SignedIn
    ) -> None:
        browser = signed_in(person(site_admin=True))

        assert bring(browser, agent, rows("a")).status_code == 200
        assert kept(agent) == ["a"]


class TestACheck:
    def test_counts_readable_rows_and_writes_nothing(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        dashboard.get(path(agent))
        before = sql.snapshot()

        answer = bring(dashboard, agent, fixture("mem0.json"), check="1")

        said = words_of(answer.text)
        assert answer.status_code == 200
        assert "Check result 2 memories can be read: 2 core, 0 journal; 16 tokens" in said
        assert "Bad rows 2 row 4: has no text" in said
        assert "Nothing was imported" in said
        assert sql.snapshot() == before

    def test_does_not_reveal_what_is_already_kept(self, dashboard: Browser, agent: Agent) -> None:
        factories.memory(agent, "it was here")
        db.session.commit()
        here = bring(dashboard, agent, rows("it was here"), check="1")
        not_here = bring(dashboard, agent, rows("it was not!"), check="1")

        assert words_of(here.text) == words_of(not_here.text)

    def test_names_every_bad_row_even_if_strict(self, dashboard: Browser, agent: Agent) -> None:
        answer = bring(dashboard, agent, fixture("mem0.json"), check="1", strict="1")

        assert answer.status_code == 200
        assert "Bad rows 2" in words_of(answer.text)

    def test_counts_rows_that_would_be_split(self, dashboard: Browser, agent: Agent) -> None:
        answer = bring(dashboard, agent, rows("word " * 6_000), check="1")

        assert "3 memories can be read" in words_of(answer.text)
        assert "Split 1 too long for one memory" in words_of(answer.text)


class TestWhatIsRefused:
    def said(self, answer: TestResponse, code: int) -> str:
        assert answer.status_code == code
        return words_of(answer.text)

    def test_a_strict_import_refuses_a_file_with_a_bad_row(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        answer = bring(dashboard, agent, fixture("mem0.json"), strict="1")

        told = "Nothing was imported: row 4: has no text in memory, text, data, content."
        assert told in self.said(answer, 422)
        assert kept(agent) == []

    def test_an_unreadable_file_is_refused(self, dashboard: Browser, agent: Agent) -> None:
        answer = bring(dashboard, agent, fixture("mcp.jsonl"), "refine")

        said = self.said(answer, 422)
        assert "Nothing in the file could be read as Refine: full export" in said
        assert "line 1: is not the manifest of an export" in said
        assert imports(agent) == []

    def test_a_form_without_a_file_is_refused(self, dashboard: Browser, agent: Agent) -> None:
        for empty in ({}, {"file": (BytesIO(), "")}, {"file": "a text"}):
            fields = {"format": "mem0", "memory_type": "core", **empty}

            answer = dashboard.submit(path(agent), fields)

            assert "Choose a file." in self.said(answer, 422)

    def test_values_that_the_form_does_not_offer_are_refused(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        for fields, problem in (
            ({"format": "zep"}, "Format must be one of letta, mem0, mcp, refine."),
            ({"format": ""}, "Format must be one of letta"),
            ({"memory_type": "vow"}, "Memory type must be one of core, journal."),
            ({"file_agent": "Rook"}, "Files in mem0 format name no agents to choose from."),
        ):
            answer = dashboard.submit(path(agent), {**sent(rows("a")), **fields})

            assert problem in self.said(answer, 422)
        assert kept(agent) == []

    def test_a_file_that_is_too_large_is_refused_with_advice(
        self, dashboard: Browser, agent: Agent
    ) -> None:
        large = b" " * (LARGEST_FILE_MEGABYTES * MEGABYTE + 100_000)

        said = self.said(bring(dashboard, agent, large), 413)

        assert (
            "The file is larger than 4 MB; import larger files on the server, "
            "with refine import ." in said
        )
        assert "Import memories into Ada" in said
        assert imports(agent) == []

    def test_it_is_refused_under_a_banner_with_a_form_of_its_own_too(
        self, dashboard: Browser, agent: Agent, admin: User
    ) -> None:
        factories.live_grant(agent, admin)
        db.session.commit()
        large = b" " * (LARGEST_FILE_MEGABYTES * MEGABYTE + 100_000)

        answer = bring(dashboard, agent, large)

        assert "Ask for more time" in answer.text
        assert "The file is larger than 4 MB" in self.said(answer, 413)

    def test_other_pages_refuse_large_forms_too(self, dashboard: Browser, agent: Agent) -> None:
        large = b" " * (LARGEST_FILE_MEGABYTES * MEGABYTE + 100_000)

        answer = post(dashboard, f"/agents/{agent.id}/settings", sent(large))

        assert "The request is too large" in self.said(answer, 413)

    def test_a_form_without_csrf_token_is_refused(self, dashboard: Browser, agent: Agent) -> None:
        answer = dashboard.post(path(agent), data=sent(rows("a")))

        assert "This form is out of date" in self.said(answer, 400)
        assert kept(agent) == []


def test_an_upload_never_touches_the_disk(
    dashboard: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dashboard.token()

    # a temporary file cannot be made in a folder that is not there
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    answer = bring(dashboard, agent, rows("a" * 9_000) + " " * 3 * MEGABYTE)

    assert answer.status_code == 200
    assert len(kept(agent)) == 1


def test_no_transaction_is_open_during_the_upload(dashboard: Browser, agent: Agent) -> None:
    boundary, body = encode_multipart({"csrf_token": dashboard.token(), **sent(rows("a"))})
    open_meanwhile: list[int] = []

    class Slow(BytesIO):
        def readinto(self, buffer: Any, /) -> int:
            open_meanwhile.append(sql.open_transactions())
            return super().readinto(buffer)

    url = path(agent)
    db.session.rollback()
    answer = dashboard.post(
        url,
        input_stream=Slow(body),
        content_length=len(body),
        content_type=f"multipart/form-data; boundary={boundary}",
    )

    assert answer.status_code == 200
    assert open_meanwhile
    assert set(open_meanwhile) == {0}


def test_an_imported_memory_is_stored_as_in_the_file(dashboard: Browser, agent: Agent) -> None:
    file = own_file(own_row(content="a vow", constitutional=True, tags=["voice"]))

    bring(dashboard, agent, file, "refine")

    memory = db.session.scalars(db.select(AgentMemory).where(AgentMemory.source.is_not(None))).one()
    assert (memory.content, memory.constitutional, memory.tags) == ("a vow", True, ["voice"])


class TestAFileThatTakesLong:
    """Small enough to be uploaded, but with more rows or values than a page may read."""

    @pytest.mark.parametrize("is_check", [True, False], ids=["check", "import"])
    @pytest.mark.parametrize(
        ("row", "separator", "format_"),
        [("{}", ",", "mem0"), ("1", ",", "letta"), ("{}", "\n", "mcp"), ("{}", "", "mcp")],
    )
    def test_is_refused_before_it_is_read(
        self,
        dashboard: Browser,
        agent: Agent,
        row: str,
        separator: str,
        format_: str,
        is_check: bool,
    ) -> None:
        content = separator.join([row] * 1_000_000)
        file = f"[{content}]" if separator == "," else content
        fields = {"check": "1"} if is_check else {}
        began = time.process_time()

        answer = bring(dashboard, agent, file, format_, **fields)

        assert time.process_time() - began < 2
        assert answer.status_code == 422
        assert "import larger files on the server" in words_of(answer.text)

    def test_is_refused_before_anything_is_written(self, dashboard: Browser, agent: Agent) -> None:
        accepted = rows("a", *[""] * (MAX_ROWS - 1))
        too_many = rows("a", *[""] * MAX_ROWS)

        refused = bring(dashboard, agent, too_many)
        assert (refused.status_code, kept(agent)) == (422, [])

        assert bring(dashboard, agent, accepted).status_code == 200
        assert kept(agent) == ["a"]


def test_nobody_is_told_what_an_import_on_the_server_found_already_here(
    agent: Agent, dashboard: Browser
) -> None:
    factories.memory(agent, "likes trains")
    db.session.commit()
    file = rows("likes trains", "drinks coffee").encode()
    import_memories(agent, partial(rows_of, BytesIO(file), "mem0"), source="mem0")
    (record,) = imports(agent)

    pages = [dashboard.get(f"/audit/{record.id}"), dashboard.get("/audit/export.jsonl")]

    assert record.data["already_here"] == 1
    for page in pages:
        assert "memory_imported" in page.text
        assert "already" not in page.text
