"""The client of the HTTP API, against a served Refine."""

import pytest

from refine.extensions import db
from refine.models import ApiToken
from refine_client import Refine, RefineError
from tests import factories
from tests.browser.serving import free_port, serving
from tests.client.conftest import KEPT
from tests.commands import UNUSED_PORT
from tests.conftest import app_of


def test_a_memory_is_saved_found_corrected_and_forgotten(home):
    saved = home.refine.save("Anna sails on Sundays", tags=["relational"])
    found = [each["id"] for each in home.refine.memories("SAILS")]
    new = home.refine.correct(saved["id"], "Anna sails on Mondays", "outdated")
    home.refine.forget(new["id"])

    assert found == [saved["id"]]
    assert home.core == list(KEPT)
    assert home.refine.memory(saved["id"])["replaced_by_id"] == new["id"]
    assert [each["id"] for each in home.refine.memories(retired=True, type="core")] == [
        *(new["id"], saved["id"]),
    ]
    assert home.told == ["memory_saved", "memory_corrected", "memory_forgotten"]


def test_the_context_is_what_stands_in_the_prompt(home):
    day = home.memories[0].created_at.date()

    assert f"- ({day}) {KEPT[0]}" in (home.refine.context() or "")


def test_all_pages_of_memories_are_read(home):
    for number in range(60):
        factories.memory(home.agent, f"the canary sings {number}")
    db.session.commit()

    found = [each["content"] for each in home.refine.memories("canary")]

    assert found == [f"the canary sings {number}" for number in reversed(range(60))]


def test_what_is_exported_can_be_brought_to_another_agent(home):
    other = factories.agent(account=home.agent.account)
    _, token = ApiToken.mint(account=other.account, agent=other)
    db.session.commit()

    rows = home.refine.export()
    there, here = Refine(token, home.url).bring("wren", rows), home.refine.bring("wren", rows)

    assert [row["content"] for row in rows] == list(KEPT)
    assert (there["added"], here["added"]) == (4, 0)
    assert [each["content"] for each in Refine(token, home.url).memories()] == [*reversed(KEPT)]


def test_a_refusal_is_raised_in_the_words_of_refine(home):
    locked = home.memories[0].id
    home.lock(locked)

    with pytest.raises(RefineError, match="constitutional") as refused:
        home.refine.correct(locked, "The key is gone")

    assert refused.value.status == 409
    assert home.core == list(KEPT)


def test_what_is_too_much_for_a_day_is_refused(home):
    longest = home.memories[-1].id

    with pytest.raises(RefineError, match=r"would remove 23 tokens, and at most 16 may go"):
        home.refine.forget(longest)

    assert home.core == list(KEPT)


def test_a_tool_call_of_a_model_is_answered_even_if_it_is_refused(home):
    names = [each["function"]["name"] for each in home.refine.tools()]
    done = home.refine.call("save_memory", '{"content": "Anna sails", "memory_type": "core"}')
    refused = home.refine.call("save_memory", "{")

    assert "self_authoring" in names
    assert (done["type"], refused["type"]) == ("saved", "error")
    assert home.core[-1] == "Anna sails"


def test_the_last_session_that_changed_memories_is_undone(home):
    changing = home.after_a_session()
    factories.ended(home.agent, "declined")
    db.session.commit()

    undone = home.refine.undo_last_session()

    assert undone["session"]["id"] == str(changing.id)
    assert undone["effect"]["brought_back"] == 1


def test_without_a_session_there_is_none_to_undo(home):
    with pytest.raises(RefineError, match="no session to undo"):
        home.refine.undo_last_session()


def test_a_session_is_requested_and_listed(home):
    asked = home.refine.request_session()

    assert [each["id"] for each in home.refine.sessions()] == [asked["id"]]


def test_who_may_read_is_listed_and_revoked(home):
    grant = factories.live_grant(home.agent, factories.user(account=home.agent.account))
    db.session.commit()

    (listed,) = home.refine.grants()
    home.refine.revoke(listed["id"])

    assert listed["id"] == str(grant.id)
    assert next(home.refine.grants())["end_reason"] == "revoked_by_agent"


def test_an_invalid_value_is_named(home):
    with pytest.raises(RefineError, match=r"^content has 10,001 characters") as refused:
        home.refine.save("x" * 10_001)

    assert (refused.value.status, refused.value.retry_after_seconds) == (422, None)


def test_too_many_requests_say_when_to_go_on(home, environ):
    slow = {**environ, "REFINE_API_WRITES_PER_MINUTE": "1"}
    with app_of(slow) as app, serving(app, port := free_port()):
        refine = Refine(home.token, f"http://localhost:{port}")
        refine.save("Anna sails")

        with pytest.raises(RefineError) as refused:
            refine.save("Bo knits")

    assert refused.value.status == 429
    assert 1 <= (refused.value.retry_after_seconds or 0) <= 60


@pytest.mark.parametrize("token", ["", "refine_agent_wrong"])
def test_a_wrong_token_is_told_plainly(home, token):
    with pytest.raises(RefineError, match="token") as refused:
        Refine(token, home.url).context()

    assert refused.value.status == 401


def test_a_refine_that_is_not_there_is_told_plainly():
    with pytest.raises(RefineError, match=r"^Refine does not answer: ConnectionError$") as refused:
        Refine("refine_agent_x", f"http://localhost:{UNUSED_PORT}").context()

    assert refused.value.status == 0


def test_the_environment_says_what_is_not_given(home, monkeypatch):
    monkeypatch.setenv("REFINE_TOKEN", f"{home.token}\n")
    monkeypatch.setenv("REFINE_URL", f"{home.url}/")

    with Refine() as refine:
        assert KEPT[0] in (refine.context() or "")


def test_a_password_file_does_not_replace_the_token(home, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login canary password sings\n")
    monkeypatch.setenv("NETRC", str(netrc))

    assert KEPT[0] in (home.refine.context() or "")
