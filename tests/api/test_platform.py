"""A platform adds and changes agents, mints and revokes tokens, and reads no content."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from refine.api.routing import OPERATIONS
from refine.extensions import db
from refine.models import Agent, AuditLog
from refine.models.agent import PROMPTS, configuring
from tests import factories
from tests.api.conftest import World, bearing, platform_of, program_of, refreshed, token_of
from tests.web.conftest import ended_session

NEW = {"name": "Wren", "model_id": "rehearsal/wren"}
CANARY = "kingfisher-at-the-weir"


def last_record(agent: Agent, action: str) -> AuditLog:
    return [each for each in factories.records(agent) if each.action == action][-1]


def journal(agent: Agent) -> list[str]:
    return [memory.content for memory in factories.journal(agent)]


# -- agents ---------------------------------------------------------------------------------------


def test_adds_an_agent(world):
    answer = world.platform.post(
        "/agents", json={**NEW, "system_prompt": CANARY, "core_token_budget": 900, "paused": True}
    )

    agent = db.session.get_one(Agent, answer.json["id"])
    assert answer.status_code == 201
    assert CANARY not in answer.text
    assert agent.account_id == world.agent.account_id
    assert agent.system_prompt == CANARY
    assert (agent.core_token_budget, agent.paused, agent.active) == (900, True, True)
    assert last_record(agent, "agent_created").data == {
        "model_id": "rehearsal/wren",
        "by": "platform",
        "token_id": token_of(world.platform).id,
    }


def test_lists_the_agents_of_the_account_alone(world):
    first = world.platform.get("/agents?limit=1").json
    second = world.platform.get(
        "/agents", query_string={"limit": 1, "cursor": first["next_cursor"]}
    ).json

    assert [each["name"] for each in second["agents"]] == ["Ada"]
    assert second["next_cursor"] is None
    assert second["agents"][0]["core_memories"] == 2
    assert second["agents"][0]["core_tokens"] == world.agent.core_token_usage
    assert world.platform.get(f"/agents/{world.agent.id}").json == second["agents"][0]


def test_records_a_change_and_tells_the_agent(world):
    agent = world.agent

    answer = world.platform.patch(
        f"/agents/{agent.id}",
        json={"model_id": "rehearsal/other", "refinement_prompt": CANARY, "paused": True},
    )

    settings, prompt = [
        each for each in factories.records(refreshed(agent)) if each.action.endswith("_update")
    ]
    hand = {"by": "platform", "token_id": token_of(world.platform).id}
    assert answer.status_code == 200
    assert answer.json["model_id"] == "rehearsal/other"
    assert refreshed(agent).refinement_prompt == CANARY
    assert settings.data == {
        "changes": {"model_id": ["test/model", "rehearsal/other"], "paused": [False, True]},
        **hand,
    }
    assert prompt.data == {"field": "refinement_prompt", "characters": len(CANARY), **hand}
    assert prompt.sealed == {"before": None, "after": CANARY}
    assert journal(agent) == ["My platform changed my settings: model, paused, refinement prompt."]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_does_not_tell_whether_the_agent_wrote_the_same_prompt(world, prompt):
    configuring.author(world.agent, prompt, CANARY)
    db.session.commit()
    sealed = getattr(world.agent, f"sealed_{prompt}")

    answer = world.platform.patch(f"/agents/{world.agent.id}", json={prompt: CANARY})

    agent = refreshed(world.agent)
    assert answer.status_code == 200
    assert agent.identity_changed_at is not None
    assert getattr(agent, f"sealed_{prompt}") != sealed
    updates = [each for each in factories.records(agent) if each.action.endswith("_update")]
    assert [each.data["by"] for each in updates].count("platform") == 1
    assert journal(agent) == [f"My platform changed my settings: {prompt.replace('_', ' ')}."]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "two\nlines"}, "name"),
        ({"name": None}, "name"),
        ({"model_id": "a/b:online"}, "model_id"),
        ({"system_prompt": "x" * 10_001}, "system_prompt"),
        ({"refinement_threshold": 0.33333}, "refinement_threshold"),
        ({"refinement_threshold": "0.5"}, "refinement_threshold"),
        ({"core_token_budget": 0}, "core_token_budget"),
        ({"core_token_budget": True}, "core_token_budget"),
        ({"active": 1}, "active"),
        ({"account_id": 1}, ""),
        ({"identity_changed_at": None}, ""),
    ],
)
def test_changes_nothing_if_one_value_is_refused(world, body, field):
    before = world.platform.get("/agents").json

    answer = world.platform.patch(
        f"/agents/{world.agent.id}", json={"core_token_budget": 77, **body}
    )
    added = world.platform.post("/agents", json={**NEW, **body})

    assert (answer.status_code, added.status_code) == (422, 422)
    assert [error["field"] for error in answer.json["errors"]] == [field]
    assert world.platform.get("/agents").json == before


# -- tokens ---------------------------------------------------------------------------------------


def test_mints_a_token_records_it_and_tells_the_agent(world, app):
    agent = world.agent
    answer = world.platform.post(f"/agents/{agent.id}/tokens")

    note = f"My platform created a token that speaks as me. It begins with {answer.json['hint']}."
    assert answer.status_code == 201
    assert note in bearing(app, answer.json["token"]).get("/context").json["context"]
    assert last_record(refreshed(agent), "token_minted").data == {
        "kind": "agent",
        "hint": answer.json["hint"],
        "by": "platform",
        "token_id": token_of(world.platform).id,
    }
    assert journal(agent) == [note]


def test_mints_a_token_that_expires(world):
    path = f"/agents/{world.agent.id}/tokens"
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

    answer = world.platform.post(path, json={"expires_at": ends})
    forever = world.platform.post(path, json={"expires_at": None})
    refused = [
        world.platform.post(path, json={"expires_at": each}).status_code
        for each in ("2020-01-01T00:00:00Z", "2999-01-01T00:00:00", "9999-12-31T23:59:59-12:00")
    ]

    assert answer.json["expires_at"][:16] == ends[:16]
    assert forever.json["expires_at"] is None
    assert refused == [422] * 3


def test_revokes_a_token_at_once_and_is_idempotent(world):
    token_id = token_of(world.own).id
    world.own.get("/context")

    answers = [world.platform.delete(f"/tokens/{token_id}") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [204, 204]
    assert all("Content-Type" not in answer.headers for answer in answers)
    assert world.own.get("/context").status_code == 401
    revoked = [each for each in factories.records(world.agent) if each.action == "token_revoked"]
    assert [each.data["token_id"] for each in revoked] == [token_of(world.platform).id]


# -- usage ----------------------------------------------------------------------------------------


@pytest.fixture
def spent(world: World) -> World:
    """A session, a reflection and a conversation in each of two months, and in another account."""
    for agent, at, cost in (
        (world.agent, datetime(2026, 9, 30, 23, 30, tzinfo=UTC), "0.25"),
        (world.agent, datetime(2026, 10, 2, tzinfo=UTC), "0.5"),
        (token_of(world.stranger).agent, datetime(2026, 10, 2, tzinfo=UTC), "9"),
    ):
        assert agent is not None
        session = ended_session(agent)
        session.created_at, session.cost_usd = at, Decimal(cost)
        session.prompt_tokens, session.completion_tokens = 100, 10
        session.unpriced_calls, session.saved_tokens = 3, 8
        session.reading_prompt_tokens, session.reading_completion_tokens = 30, 4
        session.reading_cost_usd = Decimal("0.02")
        cost_of_task = Decimal("0.01")
        factories.ended_task(agent, "reflection", at=at, cost_usd=cost_of_task, cached_tokens=7)
        factories.ended_task(agent, "extraction", at=at, cost_usd=cost_of_task, prompt_tokens=5)
    world.agent.account.time_zone = "Europe/Berlin"
    db.session.commit()
    return world


def test_sums_usage_by_agent_and_month_in_the_time_zone_of_the_account(spent):
    answer = spent.platform.get("/usage")

    assert answer.json == {
        "time_zone": "Europe/Berlin",
        "usage": [
            {
                "month": "2026-10",
                "agent_id": spent.agent.id,
                "agent": "Ada",
                "sessions": 2,
                "reflections": 2,
                "conversations": 2,
                "prompt_tokens": 210,
                "cached_tokens": 14,
                "completion_tokens": 20,
                "cost_usd": "0.790000",
                "unpriced_calls": 6,
                "reading_prompt_tokens": 60,
                "reading_completion_tokens": 8,
                "reading_cost_usd": "0.040000",
                "saved_tokens": 16,
            }
        ],
        "next_cursor": None,
    }


def test_filters_usage_by_day(spent):
    for query, sessions in (
        ("from=2026-10-01", 2),
        ("from=2026-10-02", 1),
        ("to=2026-10-02", 1),
        ("from=2026-09-01&to=2026-10-01", 0),
    ):
        usage = spent.platform.get(f"/usage?{query}").json["usage"]
        for kind in ("sessions", "reflections", "conversations"):
            assert sum(each[kind] for each in usage) == sessions, query


# -- no content -----------------------------------------------------------------------------------


def test_a_platform_token_never_reads_content(app, redis):
    agent = factories.agent(
        CANARY, name="Ada", model_id="test/ada", **dict.fromkeys(PROMPTS, CANARY)
    )
    memories = factories.ledger(agent, *[25] * 20)
    session = ended_session(agent, memories[0], summary=CANARY)
    grant = factories.live_grant(
        agent, factories.user(account=agent.account), purpose=f"{CANARY} for a purpose"
    )
    task = factories.extraction(agent, CANARY)
    platform = platform_of(app, agent.account)
    own = program_of(app, agent)
    names = {
        "agent_id": agent.id,
        "memory_id": memories[1].id,
        "session_id": session.id,
        "grant_id": grant.id,
        "conversation_id": task.id,
        "token_id": 1,
        "webhook_id": 1,
    }
    heard = []
    for path in {each.path.format(**names, name="self_authoring") for each in OPERATIONS}:
        for method in ("GET", "POST", "PATCH", "DELETE"):
            for body in ({}, NEW, {"action": "view", "field": "system_prompt"}):
                answer = platform.open(path, method=method, json=body)
                heard.append(answer.text + str(answer.headers))

    assert CANARY in own.get("/context").text
    assert CANARY in own.get("/audit").text
    assert not any(CANARY in each for each in heard)
