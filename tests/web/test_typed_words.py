"""No user of the dashboard writes words into a memory or a prompt."""

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.agent import PROMPTS
from tests import factories
from tests.guessing.driving import Asked, NotingRequest
from tests.web.test_every_route import ACTED, form_of, path_of

WORDS = "the heron sings at noon"
ENDING_THE_SIGN_IN = ("/invitations/<secret>", "/profile/password", "/sign-in", "/sign-out")


def test_nothing_that_a_user_types_ends_in_a_memory_or_a_prompt(app, world, signed_in, monkeypatch):
    monkeypatch.setattr(app, "request_class", NotingRequest)
    new = factories.agent(account=world.account, name="Bea", model_id="test/bea")
    db.session.commit()
    browser = signed_in(world.site_admin)

    for rule in sorted(ACTED, key=lambda rule: (rule in ENDING_THE_SIGN_IN, rule)):
        for path in {path_of(rule, each) for each in (world, replace(world, agent=new))}:
            for form in filled_in(rule, world.agent.id):
                browser.submit(path, form)

    db.session.rollback()
    memories, agents = (db.session.scalars(db.select(each)).all() for each in (AgentMemory, Agent))
    prompts = [getattr(agent, name) for agent in agents for name in PROMPTS]
    assert WORDS not in str([*prompts, *(memory.content for memory in memories)])


def filled_in(rule: str, agent_id: int) -> Iterator[dict[str, Any]]:
    """The form of a page with the words in a file, in fields it may have, and in each it has."""
    rows = BytesIO(json.dumps([{"memory": WORDS}]).encode())
    yield form_of(rule, "admin", agent_id) | {"file": (rows, "memories.json")}
    yield dict.fromkeys([*PROMPTS, "content", "memory"], WORDS) | form_of(rule, "admin", agent_id)
    for name in sorted({*form_of(rule, "admin", agent_id), *Asked.of_route[rule]}):
        yield form_of(rule, "admin", agent_id) | {name: WORDS}
