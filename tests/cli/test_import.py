"""`refine import` and `refine export`."""

import gc
import itertools
import json
import signal
import subprocess
import uuid

import pytest
from sqlalchemy import func, select

from refine.extensions import db
from refine.models import AccessGrant, Agent, AgentMemory
from refine.models.runs.access.asking_rules import AccessScope
from refine.transfer.objects import NO_TEXT
from refine.transfer.own import FORMAT, PAGE_MEMORIES, metadata_lines, pages_of
from tests import factories
from tests.chains import problems
from tests.commands import eventually, refine, start
from tests.sql import statements_of
from tests.transfer.files import FIXTURES

MEM0 = FIXTURES / "mem0.json"

# What the fixtures' contents, ids and names have in them; none of it is to be printed.
CONTENTS = ("train", "coffee", "dentist", "bees", "Wren", "ada", "Welsh", "Library")


def stored() -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).select_from(AgentMemory)) or 0


class TestImport:
    def test_prints_figures(self, run, ledger):
        done = run("import", "Ada", MEM0, "--format", "mem0")

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            f"2 memories imported into Ada (agent {ledger.id}): 2 core, 0 journal; 16 tokens",
            "  left out       1: blank",
            "  bad rows       2",
            f"                 row 4: {NO_TEXT}",
            "                 row 5: created_at lies in the future",
            "Ada now has 497 tokens, within its budget of 5,000",
        ]
        assert stored() == 22

    def test_dry_run_shows_the_first_memories_and_writes_nothing(self, run, ledger):
        done = run("import", "Ada", MEM0, "--dry-run")

        told, first, *_, mass, last = done.stdout.splitlines()
        would = f"2 memories would be imported into Ada (agent {ledger.id})"
        assert told == f"{would}: 2 core, 0 journal; 16 tokens"
        assert first == "  2025-11-02 core    Prefers the window seat on trains"
        assert mass == "Ada would have 497 tokens, within its budget of 5,000"
        assert last == "nothing was written"
        assert stored() == 20
        assert factories.records(ledger) == []

    def test_a_map_that_cannot_be_read_is_wrong_usage(self, run, ledger):
        for fields in ("text=content", "content", "content=a,date="):
            done = run("import", "Ada", MEM0, "--map", fields)

            assert (done.returncode, stored()) == (2, 20), fields
            assert "write content=…, date=…, subject=…, id=…, tags=…" in done.stderr

    def test_strict_imports_nothing_if_a_row_is_bad(self, run, ledger):
        done = run("import", "Ada", MEM0, "--format", "mem0", "--strict")

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"refine: nothing was imported: row 4: {NO_TEXT}\n"
        assert stored() == 20

    def test_lists_at_most_twenty_bad_rows(self, run, ledger, tmp_path):
        file = tmp_path / "bad.json"
        file.write_text(json.dumps([*range(1_025), {"memory": "good"}]))

        done = run("import", "Ada", file, "--format", "mem0")

        lines = done.stdout.splitlines()
        assert done.returncode == 0
        assert lines[0].startswith("1 memory imported into Ada")
        assert lines[1] == "  bad rows       1,025"
        assert lines[-3:-1] == [
            "                 row 20: is not an object",
            "                 and 1,005 more",
        ]

    def test_fails_if_nothing_could_be_read(self, run, ledger):
        done = run("import", "Ada", FIXTURES / "mcp.jsonl", "--format", "refine")

        assert done.returncode == 1
        assert "line 1: must be valid JSON" not in done.stdout
        assert "line 1: is not the manifest of an export" in done.stdout
        assert done.stderr == "refine: nothing in the file could be read as refine\n"

    def test_prints_no_memory_content(self, run, ledger):
        for file in sorted(FIXTURES.iterdir()):
            for format_ in ("letta", "mem0", "mcp", "refine"):
                done = run("import", "Ada", file, "--format", format_)

                output = (done.stdout + done.stderr).replace("Ada", "")
                assert not [word for word in CONTENTS if word in output], (file.name, format_)

    def test_refuses_a_pipe(self, ledger, environ):
        command = ("import", "Ada", "/dev/stdin", "--format", "mem0")
        done = start(*command, environ=environ, stdin=subprocess.PIPE)

        _, errors = done.communicate("[]", timeout=60)

        assert done.returncode == 2
        assert errors.startswith("refine: FILE is read more than once: use a file, not a pipe")


class TestExport:
    def test_prints_metadata_without_content(self, run, ledger):
        discarded = factories.memory(ledger, "gone with the canary")
        db.session.flush()
        discarded.discard()

        done = run("export", "Ada")

        manifest, *rows, end = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0
        assert "canary" not in done.stdout
        assert (manifest["format"], manifest["contents"]) == (FORMAT, False)
        assert manifest["agent_id"] == ledger.id
        assert end["count"] == len(rows) == 21
        assert set(rows[0]) == {
            *("id", "memory_type", "constitutional", "tags", "token_estimate"),
            *("source", "session_id", "sha256"),
            *("created_at", "recorded_at", "updated_at", "discarded_at", "spans_until"),
        }
        assert rows[-1]["discarded_at"] is not None

    def test_holds_a_page_of_memories_at_a_time(self, ledger):
        factories.ledger(ledger, *[1] * 2 * PAGE_MEMORIES)
        db.session.commit()
        db.session.expunge_all()
        owner = Agent.named("Ada")
        lines = metadata_lines(owner, itertools.chain.from_iterable(pages_of(owner)))
        manifest = next(lines)

        first_row = statements_of(lambda: next(lines))
        most = max(_held() for number, _ in enumerate(lines) if number % 100 == 0)

        assert "id" not in json.loads(manifest)
        assert first_row <= 2
        assert 0 < most <= 2 * PAGE_MEMORIES  # while one page follows another


def _held() -> int:
    """How many memories this process holds."""
    return sum(isinstance(each, AgentMemory) for each in gc.get_objects())


class TestExportUnderAGrant:
    @pytest.fixture
    def grant(self, ledger: Agent) -> AccessGrant:
        reader = factories.user(account=ledger.account, email="ines@example.org")
        return factories.live_grant(ledger, reader)

    def test_includes_content_and_is_recorded(self, run, ledger, grant):
        done = run("export", "Ada", "--grant", grant.id)

        manifest, *rows, _ = [json.loads(line) for line in done.stdout.splitlines()]
        assert (done.returncode, done.stderr, manifest["contents"]) == (0, "", True)
        # the journal entry about the grant comes last
        assert [row["content"] for row in rows[:-1]] == [
            memory.content for memory in db.session.scalars(ledger.ledger.core())
        ]
        record = factories.records(ledger)[-1]
        assert (record.action, record.user_id) == ("memory_access_viewed", grant.user_id)
        assert (record.data["what"], record.data["ids"]) == ("export", [row["id"] for row in rows])

    def test_prints_the_memories_alone_that_the_agent_granted(self, run, ledger):
        reader = factories.user(account=ledger.account)
        first, *_ = db.session.scalars(ledger.ledger.core()).all()
        scope = AccessScope(memory_ids=frozenset([first.id]))
        grant = factories.live_grant(ledger, reader, scope=scope)

        _, *rows, _ = run("export", "Ada", "--grant", grant.id).stdout.splitlines()

        assert [json.loads(row)["content"] for row in rows] == [first.content]
        grant.end(user=reader)
        scope = AccessScope(factories.ended(ledger).id)
        grant = factories.live_grant(ledger, reader, scope=scope)
        done = run("export", "Ada", "--grant", grant.id)
        assert (done.returncode, done.stdout) == (1, "")
        assert "the changes of one session" in done.stderr

    @pytest.mark.parametrize("whose", ["ended", "another agent's", "nobody's"])
    def test_prints_nothing_without_a_valid_grant(self, run, ledger, grant, whose):
        grant_id = grant.id
        if whose == "ended":
            grant.end(user=grant.user)
        elif whose == "another agent's":
            wren = factories.agent(name="Wren")
            grant_id = factories.live_grant(wren, factories.user(account=wren.account)).id
        else:
            grant_id = uuid.uuid4()

        done = run("export", "Ada", "--grant", grant_id)

        said = {"ended": "no active access to these memories"}.get(whose, "has no such grant")
        assert done.returncode == 1
        assert said in done.stderr
        assert done.stdout == ""
        assert not [
            record
            for record in factories.records(ledger)
            if record.action == "memory_access_viewed"
        ]


@pytest.mark.slow
def test_a_killed_import_is_completed_by_repeating_it(environ, ledger, tmp_path):
    rows, path = 3_000, tmp_path / "memories.json"
    written = [{"id": number, "memory": f"{number} bees"} for number in range(rows)]
    path.write_text(json.dumps(written))
    command = ("import", "Ada", str(path), "--format", "mem0")
    before = stored()

    killed = start(*command, environ=environ)
    eventually(lambda: stored() > before)
    killed.kill()
    killed.communicate()
    kept = stored() - before
    done = refine(*command, environ=environ)

    assert (0 < kept < rows, killed.returncode, done.returncode) == (True, -signal.SIGKILL, 0)
    imported = select(AgentMemory).where(AgentMemory.source == "mem0")
    contents = sorted(memory.content for memory in db.session.scalars(imported))
    assert contents == sorted(row["memory"] for row in written)
    assert problems() == []
