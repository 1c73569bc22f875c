"""An agent requests and undoes its own sessions."""

from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from tests import factories
from tests.api.conftest import refreshed
from tests.web.conftest import ended_session


def ended(agent: Agent) -> RefinementSession:
    """An ended session that deleted one of many memories."""
    memories = factories.ledger(agent, *[25] * 20)
    session = ended_session(agent, memories[0], summary="I let one go")
    db.session.commit()
    return session


def test_queues_a_session(world, redis):
    answer = world.own.post("/sessions")

    assert answer.status_code == 202
    assert (answer.json["trigger"], answer.json["status"]) == ("api", "queued")
    assert redis.exists(f"rq:job:{answer.json['id']}") == 1
    assert world.own.get("/sessions").json["sessions"] == [answer.json]


def test_names_the_live_session_when_another_is_requested(world, redis):
    first = world.own.post("/sessions", json={}).json

    second = world.own.post("/sessions", json={})

    assert second.status_code == 409
    assert second.json["type"] == "urn:refine:problem:session-already-live"
    assert second.json["session_id"] == first["id"]


def test_lists_sessions_with_their_outcome(world):
    session = ended(world.agent)

    listed = world.own.get("/sessions?status=completed").json["sessions"]

    assert listed == [world.own.get(f"/sessions/{session.id}").json]
    assert listed[0]["stats"] == {"consolidated": 0, "updated": 0, "deleted": 1, "protected": 0}
    assert listed[0]["summary"].endswith("I let one go")
    assert world.own.get("/sessions?status=failed").json["sessions"] == []
    assert world.sibling.get("/sessions").json["sessions"] == []


def test_undoes_the_last_session_once(world):
    session = ended(world.agent)
    mass = world.agent.core_token_usage

    answer = world.own.post(f"/sessions/{session.id}/undo")
    again = world.own.post(f"/sessions/{session.id}/undo")

    assert answer.status_code == 200
    assert answer.json["effect"]["brought_back"] == 1
    assert answer.json["undone_before"] is False
    assert answer.json["session"]["undone_at"] is not None
    for each in (answer, again):
        assert each.json["session"]["undone_through"] == "agent"
    assert refreshed(world.agent).core_token_usage == mass + 25
    assert (again.status_code, again.json["undone_before"]) == (200, True)


def test_names_the_records_that_prevent_an_undo(world):
    session = ended(world.agent)
    gone = world.own.get("/memories?discarded=true").json["memories"][0]
    db.session.get_one(AgentMemory, gone["id"]).restore()
    db.session.commit()

    answer = world.own.post(f"/sessions/{session.id}/undo")

    assert answer.status_code == 409
    assert answer.json["type"] == "urn:refine:problem:undo-conflict"
    assert [each["memory_id"] for each in answer.json["obstacles"]] == [gone["id"]]
    assert answer.json["obstacles"][0]["action"] == "memory_restored"
    assert gone["content"] not in answer.text
