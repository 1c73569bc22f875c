"""`refine memory`: a memory erased by an operator, and what is kept about a person who asks."""

import uuid
from datetime import timedelta

from refine import clock
from refine.extensions import db
from refine.models import AgentMemory
from refine.models.correcting import correct
from refine.models.erasing import erase
from tests import factories
from tests.chains import problems
from tests.commands import refine


def test_erases_a_memory_for_good_on_the_second_day(ledger, run):
    ids = [memory.id for memory in ledger.ledger.matching(ledger.ledger.core(), "at dawn")]
    memory = db.session.get_one(AgentMemory, ids[-1])
    new = correct(ledger, memory.id, "the canary sings in the morning").id

    first = run("memory", "erase", memory.id)
    too_soon = run("memory", "erase", memory.id)
    with clock.ahead(timedelta(days=2)):
        done = run("memory", "erase", memory.id)
    assert problems() == []
    grant = factories.live_grant(ledger, factories.user(account=ledger.account))
    db.session.commit()
    exported = run("export", "Ada", "--grant", grant.id)

    assert first.stdout.startswith(f"to be erased from Ada: #{memory.id}; repeat this from ")
    assert f"made of these, and staying: #{new} (--with-descendants)" in first.stdout
    assert (too_soon.returncode, "can be erased from" in too_soon.stderr) == (1, True)
    assert done.stdout.startswith(f"erased for good from Ada: #{memory.id}\n")
    assert "sings in the morning" in exported.stdout
    assert "the canary sings at dawn" not in exported.stdout + done.stderr
    db.session.expire_all()
    assert memory.is_erased


def test_a_person_asks_and_gets_the_same_receipt_whatever_was_found(ledger, environ, run):
    asked = refine("memory", "erase-about", "Ada", environ=environ, stdin="Bertram Quill")
    request = asked.stdout.strip()
    waiting = run("memory", "receipt", request)
    run("worker", "--burst")

    found = factories.memory(ledger, "Bertram likes tea", constitutional=True)
    done = run("memory", "receipt", request)
    with_figures = run("memory", "receipt", request, "--figures")
    db.session.rollback()
    erase(ledger, found.id, "data subject")
    db.session.commit()

    told = run("memory", "receipt", request)
    figures = run("memory", "receipt", request, "--figures")

    assert waiting.stdout.endswith("queued: not searched yet\n")
    assert "whatever was found is erased for good, a day later or within a month," in done.stdout
    assert with_figures.stdout == done.stdout == told.stdout
    waits = f"waits: #{found.id}, until its flag is lifted\n"
    assert figures.stdout == done.stdout + waits
    (record,) = [r for r in factories.records(ledger) if r.action == "data_subject_search_ended"]
    assert f"record {record.sequence} of its chain: {record.hash}\n" in done.stdout
    again = refine("memory", "erase-about", "Ada", environ=environ, stdin="Bertram Quill")
    unknown = run("memory", "receipt", uuid.uuid4())
    assert (again.returncode, unknown.returncode) == (1, 1)
    assert "there is no request" in unknown.stderr
