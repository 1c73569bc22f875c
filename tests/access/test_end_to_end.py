"""Asked, read and ended: what stays is a chain of records that is whole, and sealed bytes."""

from refine.access import reading
from refine.extensions import db
from tests import sql
from tests.access.conftest import World
from tests.chains import verify_agent

PURPOSE = "to hear why the c4n4ry fell silent"


def test_after_all_of_it_the_records_verify_and_nothing_is_stored_in_clear(world: World) -> None:
    world.model.say("YES, the c4n4ry may be read about")
    grant = world.ask(world.request(purpose=PURPOSE))
    reading.search(grant.id, world.reader, "c4n4ry", world.agent.ledger.core(), rows=9)
    reading.memories(grant.id, world.reader, [memory.id for memory in world.memories])
    reading.prompts(grant.id, world.reader)
    grant.end(user=world.reader)
    db.session.commit()

    assert verify_agent(world.agent).problem is None
    stored = "\n".join(row for rows in sql.snapshot().values() for row in rows).lower()
    for word in ("c4n4ry", "roses", "gardener"):
        assert word not in stored
        assert word.encode().hex() not in stored
