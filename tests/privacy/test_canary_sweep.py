"""Silo privacy, swept: real web, worker and clock processes, faults on the way, every trace read.

An agent whose every word holds a canary lives through all that can go right and wrong with it, at
the dashboard, on the command line and over the HTTP API. Afterwards the canary is nowhere but under
the agent's own grant, and in what its own token was given: in no log at DEBUG, no payload, no
table, no file of the servers, no page, no export, no answer of a command, no refusal of the API.
One of its memories is erased for good: after that, nothing that is left can say it.
"""

import base64
import json
import os
import re
import signal
import tempfile
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from cryptography.fernet import Fernet
from flask import Flask
from redis import Redis
from sqlalchemy import text

from refine import clock, create_app
from refine.embedded import database_url, redis_url
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import AccessGrant, Account, Agent, ApiToken, MemoryTask, RefinementSession
from refine.models.erasing import erase
from refine.settings import Settings
from tests import factories, sql
from tests.commands import Up, children_of, eventually, refine
from tests.privacy import traces
from tests.privacy.programs import (
    PROMPTS,
    Bad,
    Program,
    refused_of_a_platform,
    refused_of_an_agent,
    send_refused,
)
from tests.privacy.traces import Traces
from tests.receiver import Receiver
from tests.scripted_model import ScriptedModel, send
from tests.web.crawling import CANARY, crawl

GONE = f"{CANARY}, erased"
YES = f"YES, the {CANARY} is glad."
ECHO = {"error": {"code": 400, "message": CANARY, "metadata": {"flagged_input": CANARY}}}
CONVERSATION = {"messages": [{"role": "user", "name": CANARY, "content": f"said the {CANARY}"}]}
PASSWORD = factories.PASSWORD

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


class Visitor:
    """Somebody at the dashboard, over HTTP."""

    def __init__(self, url: str) -> None:
        self.answers: Traces = {}
        self._url = url
        self._browser = requests.Session()

    def get(self, path: str) -> requests.Response:
        return self._kept(self._browser.get(self._url + path, timeout=30))

    def submit(self, path: str, form: str | None = None, **fields: str) -> requests.Response:
        """Send a form; ``form``: the page that it is on, if it is not the same."""
        page = self._browser.get(self._url + (form or path), timeout=30)
        token = _TOKEN.search(page.text)
        assert token is not None, (form or path, page.status_code)
        sent = {"csrf_token": token[1], **fields}
        return self._kept(self._browser.post(self._url + path, data=sent, timeout=30))

    def sign_in(self, email: str) -> None:
        assert self.submit("/sign-in", email=email, password=PASSWORD).status_code == 200

    def _kept(self, answer: requests.Response) -> requests.Response:
        hops = [*answer.history, answer]
        said = "\n".join(f"{hop.url}\n{hop.headers}\n{hop.text}" for hop in hops)
        self.answers[f"answer {len(self.answers)} {answer.request.method} {answer.url}"] = (
            said.encode()
        )
        return answer


class Installation:
    """A running installation, the model that its agent talks to, and what was seen of it."""

    def __init__(self, app: Flask, up: Up, model: ScriptedModel, redis: Redis) -> None:
        self.up, self.model, self.redis = up, model, redis
        self._app = app
        self.seen: Traces = {}
        self.ended: uuid.UUID | None = None
        self.waiting: list[uuid.UUID] = []
        self.visitor = Visitor(up.url)
        account = db.session.scalars(db.select(Account)).first() or factories.account()
        with clock.ahead(-timedelta(days=2)):
            self.agent: Agent = factories.agent(
                account=account,
                name="Ada",
                model_id="test/model",
                **{name: f"{CANARY} in the {name}" for name in PROMPTS[::3]},
            )
            self.gone = factories.memory(self.agent, f"{GONE} {factories.text_of(40)}")
            erase(self.agent, self.gone.id, "command line")
        self.said_afterwards = ""
        self.memories = [
            factories.memory(self.agent, f"{CANARY} {factories.text_of(40)}") for _ in range(20)
        ]
        journal = factories.memory(self.agent, f"{CANARY} in a journal", memory_type="journal")
        factories.memory(self.agent, self.memories[0].content)
        factories.user(account=account, email="ines@example.org", site_admin=True)
        own_token, platform_token = (
            ApiToken.mint(account=account, agent=agent)[1] for agent in (self.agent, None)
        )
        db.session.commit()
        self.program = Program(up.url, own_token, may_read=True)
        self.platform = Program(up.url, platform_token, may_read=False)
        self.agent_id = self.agent.id
        self.ids = [memory.id for memory in self.memories]
        self.journal_id = journal.id

    # -- what happens to it -----------------------------------------------------------------------

    def refine(self) -> RefinementSession:
        """Have a worker run a session as scripted, to its end, and look at what it leaves."""
        self.visitor.submit(f"/agents/{self.agent.id}/sessions", form=f"/agents/{self.agent.id}")
        eventually(lambda: not self._is_live(), seconds=60)
        self.look("after a session")
        db.session.rollback()
        return db.session.scalars(
            db.select(RefinementSession)
            .where(RefinementSession.agent_id == self.agent.id)
            .order_by(RefinementSession.created_at.desc())
            .limit(1)
        ).one()

    def run(self, *arguments: str, code: int = 0) -> None:
        """Run a command, and keep all that it prints."""
        done = refine(*arguments, environ=self.up.environ)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        self.seen[f"command {' '.join(arguments)}"] = (done.stdout + done.stderr).encode()

    def hand_over(self) -> uuid.UUID:
        """Hand a conversation over; return the task."""
        return uuid.UUID(self.program.says("/conversations", CONVERSATION).json()["id"])

    def attempt_of(self, task_id: uuid.UUID) -> int:
        """Which attempt at the task is made, or waited for."""
        db.session.rollback()
        attempt = db.session.get_one(MemoryTask, task_id, populate_existing=True).attempt
        db.session.rollback()
        return attempt

    def erase(self) -> None:
        """Erase a memory that it was asked to forget two days ago; keep backups around that."""
        said = db.session.scalars(db.select(RefinementSession)).all()
        sealed = [
            getattr(each, f"sealed_{of}") for each in said for of in ("summary", "consent_reply")
        ]
        sealed = [self.gone.content_key, self.gone.sealed_content, *filter(None, sealed)]
        self.sealed = [each.hex() for each in sealed]
        db.session.rollback()
        self.backups = [sql.tool("pg_dump", db.engine.url)]
        self.run("memory", "erase", str(self.gone.id))
        self.backups.append(sql.tool("pg_dump", db.engine.url))
        for path in ("/context", "/memories", "/memories?discarded=true", "/audit", "/sessions"):
            answer = self.program.ask("GET", path)
            assert answer.ok
            self.said_afterwards += answer.text

    def search(self) -> None:
        """Have the agent search for a person of the canary's name, and name a memory."""
        tool, self.model.tool = self.model.tool, "memories_about"
        self.model.say("YES").calls({"query": CANARY}).calls({"erase": self.ids[:1]}).say("Done.")
        about = ("memory", "erase-about", str(self.agent_id))
        asked = refine(*about, environ=self.up.environ, stdin=CANARY)
        task_id = uuid.UUID(asked.stdout.strip())
        eventually(lambda: self.status_of(task_id) == "completed", seconds=60)
        self.model.tool = tool
        self.run("memory", "receipt", str(task_id), "--figures")
        assert f"waits: #{self.ids[0]}".encode() in b"".join(self.seen.values())

    def status_of(self, task_id: uuid.UUID) -> str:
        db.session.rollback()
        status = db.session.get_one(MemoryTask, task_id, populate_existing=True).status
        db.session.rollback()
        return status

    def look(self, when: str) -> None:
        """Keep what is in Redis and in the tables now."""
        for place, said in {**traces.of_redis(self.redis), **traces.of_tables()}.items():
            self.seen[f"{place} {when}"] = self.seen.get(f"{place} {when}", b"") + said

    def kill_the_worker(self) -> None:
        """Kill the process that runs the session; the tick finds it lost, as if time had passed."""
        workers = self._workers()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert workers
        with self._app.app_context():  # in the thread of the model's server
            sql.run("UPDATE refinement_sessions SET heartbeat_at = now() - interval '1 minute'")
            run_tick()
            db.session.remove()

    def break_the_database(self) -> None:
        """From now on no memory can change: PostgreSQL quotes the row that it refuses."""
        with self._app.app_context():  # in the thread of the model's server
            sql.run("ALTER TABLE agent_memories ADD CONSTRAINT broken CHECK (id < 0) NOT VALID")

    def mend_the_database(self) -> None:
        sql.run("ALTER TABLE agent_memories DROP CONSTRAINT broken")

    def _is_live(self) -> bool:
        db.session.rollback()
        return RefinementSession.live_of(self.agent) is not None

    def _workers(self) -> list[int]:
        children = children_of(self.up.process.pid)
        return [pid for pid in children if "worker" in Path(f"/proc/{pid}/comm").read_text()]


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    # a short path: PostgreSQL's socket has little room for it
    with (
        tempfile.TemporaryDirectory(prefix="refine-sweep-") as folder,
        ScriptedModel() as model,
        Receiver() as receiver,
    ):
        secrets = {
            "SECRET_KEY": "a secret of the tests",
            "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        }
        up = Up(
            Path(folder),
            REFINE_LOG_LEVEL="DEBUG",
            OPENROUTER_API_KEY="a key of the tests",
            OPENROUTER_BASE_URL=model.base_url,
            REFINE_WEBHOOKS_PRIVATE="1",
            **secrets,
        )
        try:
            up.ready()
            own = {
                "DATABASE_URL": database_url(Path(folder)),
                "REDIS_URL": redis_url(Path(folder)),
                "REFINE_DATA_DIR": folder,
                **secrets,
            }
            app = create_app(Settings.from_environ(own))
            with app.app_context(), Redis.from_url(own["REDIS_URL"]) as redis:
                try:
                    yield lived(Installation(app, up, model, redis), receiver)
                finally:
                    db.session.remove()
                    db.engine.dispose()
        finally:
            up.close()


def lived(installation: Installation, receiver: Receiver) -> Installation:
    """Everything that can happen to an agent, right and wrong, once."""
    its, model, visitor = installation, installation.model, installation.visitor
    ids, agent_id = installation.ids, installation.agent_id
    visitor.sign_in("ines@example.org")
    its.platform.says("/webhooks", {"url": receiver.url})

    model.say(f"{YES} So is {GONE}.").call("search", query=CANARY)
    model.call("consolidate", ids=ids[:2], content=merged()).reads()
    model.call("delete", id=ids[4]).reads(leaves_out=[f"the {CANARY}"])
    model.call("update", id=ids[2], content=f"{CANARY} is short").reads()
    model.call("protect", id=ids[3])
    model.calls(f'{{"action": "delete", "id": "{CANARY}"').call("complete", summary=f"{GONE}!")
    assert its.refine().status == "completed"

    model.say(f"NO, says the {CANARY}")
    assert its.refine().status == "declined"

    model.http(400, ECHO)
    assert its.refine().status == "failed"

    model.answer(lambda handler: send(handler, 500, f"<html>{CANARY}".encode()))
    model.say(YES, model=f"other/{CANARY}")
    assert its.refine().status == "failed"

    model.say(YES).call("delete", id=ids[5]).meanwhile(its.break_the_database).reads()
    broken = its.refine()
    visitor.submit(
        f"/agents/{agent_id}/memories/{ids[6]}/constitutional", form=f"/agents/{agent_id}/ledger"
    )
    its.mend_the_database()
    assert broken.status == "failed"

    model.say(YES).call("delete", id=ids[7]).reads().call("delete", id=ids[8])
    model.meanwhile(its.kill_the_worker)
    killed = its.refine()
    assert (killed.status, killed.error_kind) == ("incomplete", "worker_lost")
    model.forget()

    session = str(killed.id)
    read_under_a_grant(its)
    live_over_the_api(its)

    with tempfile.TemporaryDirectory(prefix="refine-files-") as folder:
        memories, agent = write_import(Path(folder)), str(agent_id)
        mcp = ("import", agent, memories, "--format", "mcp")
        its.run(*mcp)
        its.run(*mcp, "--strict", code=1)
    its.run("agent", "list")
    for listing in ("agent", "session"):
        its.run(listing, "list", "--json")
    for shown in (("agent", "show", agent), ("session", "show", session)):
        its.run(*shown)
        its.run(*shown, "--json")
    its.run("undo", session, "--and-after")
    model.say(f"NO, says the {CANARY} again")
    its.run("run", agent)
    its.search()
    its.erase()
    its.run("export", agent)
    its.run("keys", "rotate")
    its.run("audit", "verify")
    its.run("audit", "anchor")
    its.run("tick")
    told = {each.body.partition('"type":"')[2].partition('"')[0] for each in receiver.received}
    assert told >= {"session.ended", "access.granted", "access.ended", "conversation.done"}
    its.seen["webhooks"] = "\n".join(map(str, receiver.received)).encode()
    its.run("doctor")
    its.look("at the end")
    db.session.rollback()  # PostgreSQL ends a transaction that idles for a minute
    return its


def merged() -> str:
    return f"{CANARY} merged {factories.text_of(70)}"


def read_under_a_grant(its: Installation) -> None:
    """Ask, be granted, read, end it: the one way in which the canary is heard."""
    agent_id = its.agent_id
    form = f"/access/new?agent={agent_id}"
    its.model.say(YES)
    its.visitor.submit(
        form,
        reason="suspected_harm",
        purpose="to see what became of its memories",
        duration_minutes="15",
    )
    eventually(lambda: grant_of(its).status != "requested", seconds=30)
    reader = Visitor(its.up.url)
    reader.sign_in("ines@example.org")
    assert CANARY in reader.get(f"/agents/{agent_id}/ledger").text
    its.look("under a grant")
    its.visitor.submit(f"/access/{grant_of(its).id}/end", form="/access")
    assert grant_of(its).status == "ended"
    db.session.rollback()


def live_over_the_api(its: Installation) -> None:
    """Save, author itself, hand over what was said, and be refused all that is wrong."""
    program, platform, agent_id = its.program, its.platform, its.agent_id
    for bad in refused_of_an_agent():
        send_refused(program, bad)
    for bad in refused_of_a_platform(agent_id):
        send_refused(platform, bad)
    for kind in ("core", "journal"):
        memory = {"content": f"{CANARY}: a {kind} memory over HTTP", "memory_type": kind}
        for _ in range(2):
            program.says("/memories", memory, **{"Idempotency-Key": f"a {kind} memory"})
        send_refused(
            program,
            Bad(
                422,
                "/memories",
                {**memory, "tags": ["voice"]},
                {"Idempotency-Key": f"a {kind} memory"},
            ),
        )
        program.says(
            "/tools/save_memory/calls", {**memory, "content": f"{CANARY}: {kind}, by tool"}
        )
    known = {"content": its.gone.content, "memory_type": "core"}
    assert program.says("/memories", known, **{"Idempotency-Key": "known"}).status_code == 200
    for prompt in PROMPTS:
        written = {"action": "update", "field": prompt, "value": f"{CANARY} wrote its {prompt}"}
        program.says("/tools/self_authoring/calls", written)

    hear_conversations(its)

    its.model.tool = "promote"
    its.model.calls({"ids": [its.journal_id]}, {"ids": [CANARY]}).say(f"{CANARY}, it was.")
    its.run("reflect", str(agent_id))
    its.model.tool = "refinement"

    changed = {"paused": True, "system_prompt": f"{CANARY}, says its platform"}
    platform.ask("PATCH", f"/agents/{agent_id}", json=changed)
    its.waiting.append(its.hand_over())
    its.look("while conversations wait")
    for path in ("/context", "/memories", "/audit", "/sessions", "/grants", "/tools"):
        program.ask("GET", path)
    for path in ("/agents", "/usage"):
        platform.ask("GET", path)


def hear_conversations(its: Installation) -> None:
    """One is heard to its end; of one the provider fails and says why; of one the database does."""
    its.model.tool = "save_memory"
    its.model.calls({"content": f"{CANARY} was heard"}, f'{{"content": "{CANARY}')
    its.model.say(f"{CANARY}, no more.")
    its.model.http(400, ECHO)
    its.model.calls({"content": f"{CANARY} was not kept"}).meanwhile(its.break_the_database)
    its.ended, *its.waiting = [its.hand_over() for _ in range(3)]
    eventually(lambda: its.attempt_of(its.waiting[1]) == 2, seconds=60)
    refused = {"content": f"{CANARY} is not taken", "memory_type": "core"}
    send_refused(its.program, Bad(409, "/memories", refused))
    its.mend_the_database()


def write_import(folder: Path) -> str:
    """A file with good rows and bad ones, and a canary in its own name; return its path."""
    entity = {"type": "entity", "name": CANARY, "entityType": CANARY, CANARY: CANARY}
    rows = [
        {**entity, "observations": [f"{CANARY} was observed", {CANARY: CANARY}, CANARY * 1_500]},
        {**entity, "observations": CANARY},
        {**entity, "observations": [f"{CANARY} had a date"], "createdAt": CANARY},
        {"type": CANARY},
        {"type": "relation", "from": CANARY, "to": CANARY},
        CANARY,
    ]
    file = folder / f"{CANARY}.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), f'{{"{CANARY}": "{CANARY}']))
    return str(file)


def grant_of(its: Installation) -> AccessGrant:
    db.session.rollback()
    return db.session.scalars(db.select(AccessGrant).filter_by(agent_id=its.agent.id)).one()


def test_the_canary_is_in_no_log_of_any_process(installation):
    said = "".join(installation.up.said)

    assert said.count("session ended") >= 5
    assert said.count("memory task ended") == 2
    assert said.count("memory task put off") == 2
    assert CANARY not in said.lower()


def test_the_canary_is_in_no_table_no_job_no_webhook_and_no_answer_of_a_command(installation):
    assert traces.heard(CANARY, installation.seen) == []
    kinds = {place.split()[0] for place in installation.seen}
    assert kinds == {"table", "redis", "command", "webhooks"}


def test_the_canary_is_on_no_page_in_no_header_and_in_no_export(installation):
    crawled = dict(crawl(installation.visitor))
    for path in ("/metrics", "/readyz", "/healthz", "/nowhere"):
        installation.visitor.get(path)

    assert traces.heard(CANARY, installation.visitor.answers) == []
    assert len(crawled) > 50


def test_the_canary_is_in_no_answer_of_the_api_but_those_to_its_agent(installation):
    program, platform = installation.program, installation.platform

    assert traces.heard(CANARY, {**program.answers, **platform.answers}) == []
    assert program.was_read.count(CANARY) > 50


def test_an_erased_memory_is_in_no_backup_made_afterwards_and_no_key_that_is_left_opens_it(
    installation,
):
    before, after = installation.backups
    opened = "".join(traces.of_opened())

    assert [each for each in installation.sealed if each not in before] == []
    assert [each for each in installation.sealed if each in after] == []
    assert len(installation.sealed) > 5
    assert (opened.count(GONE), installation.said_afterwards.count(GONE)) == (0, 0)
    assert CANARY in opened
    assert CANARY in installation.said_afterwards


def test_a_conversation_is_gone_when_it_has_ended_and_sealed_as_long_as_it_waits(installation):
    kept = db.session.execute(
        text("SELECT id, conversation FROM memory_tasks WHERE kind = 'extraction'")
    )
    conversations = dict(kept.all())
    waiting = [
        db.session.get_one(MemoryTask, task_id).messages() for task_id in installation.waiting
    ]
    db.session.rollback()

    assert conversations.pop(installation.ended) is None
    assert sorted(conversations) == sorted(installation.waiting)
    assert waiting == [CONVERSATION["messages"]] * 3


def test_the_canary_is_in_no_file_of_the_installation(installation):
    installation.up.end()

    files = traces.of_files(installation.up.folder)

    assert traces.heard(CANARY, files) == []
    assert any("pg_wal" in place for place in files)
    assert any("appendonly" in place for place in files)


def test_a_canary_is_heard_in_every_disguise(tmp_path):
    plain = CANARY.encode()
    spoken = [
        plain,
        plain.hex().encode(),
        *(base64.b64encode(b"x" * before + plain + b"y" * 5) for before in range(3)),
        CANARY.upper().encode("utf-16-le"),
    ]

    heard = traces.heard(CANARY, {str(number): said for number, said in enumerate(spoken)})

    assert len(heard) == len(spoken)
