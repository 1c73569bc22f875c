"""`refine memory erase`, as an operator runs it twice."""

from datetime import timedelta

from refine import clock
from refine.extensions import db
from refine.models import AgentMemory
from refine.models.correcting import correct
from tests import factories
from tests.chains import problems


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
