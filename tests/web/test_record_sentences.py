"""What a record's page says in a sentence, for each action."""

from typing import Any

import pytest

from refine.extensions import db
from refine.models import Agent, AuditLog, User
from refine.models.audit.kinds import ACTIONS
from refine.web.audit.sentences import sentence
from tests import factories
from tests.web.conftest import Browser, person, records

Data = dict[str, Any]

CORE = {"memory_type": "core", "token_estimate": 25, "created_at": "2026-03-01T00:00:00+00:00"}
GONE = {"discarded_at": "2026-03-02T00:00:00+00:00"}


@pytest.fixture
def agent(admin: User) -> Agent:
    return factories.agent(account=admin.account, name="Wren")


def kept(id_: int) -> Data:
    return {"id": id_, "before": CORE, "after": {}}


def gone(id_: int) -> Data:
    return {"id": id_, "before": CORE, "after": GONE}


def back(id_: int) -> Data:
    return {"id": id_, "before": CORE | GONE, "after": {"discarded_at": None}}


def new(id_: int, tokens: int = 25) -> Data:
    return {"id": id_, "before": None, "after": {**CORE, "token_estimate": tokens}}


OF_SESSIONS = [
    (
        "dedup",
        {"memories": [gone(7), kept(3)], "duplicate_of": 3},
        "Memory #7 was an exact duplicate of memory #3 and was discarded before Wren was asked.",
    ),
    (
        "consolidate",
        {"memories": [gone(1), gone(2), new(9, 30)]},
        "Wren merged memories #1 and #2 into memory #9: 20 tokens fewer.",
    ),
    (
        "update",
        {"memories": [{"id": 5, "before": CORE, "after": {"token_estimate": 26}}]},
        "Wren rewrote memory #5: 1 token more.",
    ),
    ("delete", {"memories": [gone(5)]}, "Wren discarded memory #5: 25 tokens fewer."),
    ("protect", {"memories": [kept(5)]}, "Wren made memory #5 constitutional."),
    (
        "complete",
        {"mutation_count": 2, "mass_before": 1200, "mass_after": 900},
        "Wren completed its session with 2 changes. Its core memories went from 1,200 to 900 "
        "tokens.",
    ),
    ("complete", {}, "Wren completed its session with 0 changes."),
    ("declined", {"reason": "not today"}, "Wren did not consent: not today."),
    ("skipped", {"reason": "nothing may go"}, "The session of Wren was skipped: nothing may go."),
    ("incomplete", {}, "Wren's session ended early."),
    ("failed", {"reason": "timeout"}, "Wren's session failed: timeout."),
    (
        "rollback",
        {"reason": "too much would go"},
        "All changes of Wren's session were rolled back: too much would go.",
    ),
    (
        "rollback",
        {"operation": "undo", "by": "agent", "undone_sessions": ["a"], "undone_records": [1, 2]},
        "1 session of Wren was undone by Wren: 2 recorded changes reversed.",
    ),
    (
        "rollback",
        {"operation": "undo", "undone_sessions": ["a", "b"], "undone_records": [1]},
        "2 sessions of Wren were undone: 1 recorded change reversed.",
    ),
]
OTHERS = [
    ("refinement_queued", {"trigger": "weekly"}, "A session of Wren was requested (schedule)."),
    ("refinement_queued", {}, "A session of Wren was requested."),
    ("refinement_seen", {}, "The outcome of Wren's session was acknowledged."),
    ("memory_saved", {"memories": [new(4)]}, "Memory #4 of Wren was saved."),
    (
        "memory_imported",
        {"added": 3, "source": "mem0", "already_here": 2, "by": "command line"},
        "3 memories imported for Wren from mem0 by the command line.",
    ),
    ("memory_imported", {"added": 1}, "1 memory imported for Wren."),
    (
        "memory_promoted",
        {"memories": [kept(4)]},
        "Wren promoted memory #4 to its core memories.",
    ),
    (
        "memory_reflection_ended",
        {"kind": "reflection", "status": "completed", "memories_kept": 1},
        "Wren's reflection completed: 1 memory kept.",
    ),
    (
        "memory_extraction_ended",
        {"kind": "extraction", "status": "failed"},
        "Wren's conversation failed: 0 memories kept.",
    ),
    (
        "memory_discarded",
        {"memories": [gone(4)]},
        "Memory #4 of Wren was discarded: 25 tokens fewer.",
    ),
    (
        "memory_restored",
        {"memories": [back(4)]},
        "Memory #4 of Wren was restored: 25 tokens more.",
    ),
    (
        "memory_constitutional_toggle",
        {"memories": [kept(4)], "constitutional": True},
        "Memory #4 of Wren was made constitutional.",
    ),
    (
        "memory_constitutional_toggle",
        {"memories": [kept(4)], "constitutional": False},
        "Memory #4 of Wren was made non-constitutional.",
    ),
    ("agent_created", {"model_id": "x/y"}, "Wren was added, with the model x/y."),
    (
        "agent_settings_update",
        {"changes": {"model_id": ["a/b", "c/d"], "refinement_threshold": [None, "0.8"]}},
        "Wren's settings were changed: model a/b → c/d; retention threshold not set → 0.8.",
    ),
    (
        "agent_settings_update",
        {"field": "refinement_prompt", "by": "agent"},
        "Wren's refinement prompt was changed by Wren.",
    ),
    (
        "account_settings_update",
        {"changes": {"paused": [False, True]}},
        "The account's settings were changed: paused False → True.",
    ),
    ("sweep_requested", {}, "A sweep over the account's agents was requested."),
    (
        "requests_refused",
        {"refusals": 10, "last": "not_found"},
        "10 requests were refused within an hour, the last one as not found.",
    ),
    (
        "token_minted",
        {"kind": "agent", "hint": "refine_agent_ab", "by": "platform"},
        "The agent token refine_agent_ab… was created by the platform.",
    ),
    (
        "token_first_used",
        {"kind": "agent", "hint": "ab"},
        "The agent token ab… was used for the first time.",
    ),
    ("token_revoked", {"kind": "platform", "hint": "ab"}, "The platform token ab… was revoked."),
    (
        "agent_erased",
        {"by": "command line"},
        "Wren's data key was destroyed by the command line: its content can never be decrypted "
        "again.",
    ),
    (
        "verification_failed",
        {"problems": 2, "first": "record 7 of agent 3 was changed"},
        "2 problems found: record 7 of agent 3 was changed.",
    ),
    (
        "audit_exported",
        {"format": "csv", "filter": {"kind": "read", "since": "2026-03-01"}},
        "Records were exported as csv: records with kind read, since 2026-03-01.",
    ),
    ("audit_exported", {"format": "csv"}, "Records were exported as csv: all visible records."),
    ("keys_rotated", {}, "Keys rotated."),
]


def said(record: AuditLog) -> str:
    db.session.flush()
    db.session.refresh(record)
    return sentence(record)


@pytest.mark.parametrize(
    ("action", "data", "words"),
    [*((f"memory_refinement_{name}", *rest) for name, *rest in OF_SESSIONS), *OTHERS],
)
def test_a_record_tells_what_happened(agent: Agent, action: str, data: Data, words: str) -> None:
    assert said(agent.record(action, data=data)) == words


ACCESS = [
    (
        "requested",
        {"duration_minutes": 30, "reason": "agent_asked"},
        "{} asked to read Wren's memories for 30 minutes: the agent asked for it.",
    ),
    ("requested", {}, "{} asked to read Wren's memories for 0 minutes."),
    ("granted", {"duration_minutes": 30}, "Wren let {} read its memories for 30 minutes."),
    ("declined", {}, "Wren did not let {} read its memories."),
    ("asking_allowed", {}, "Wren lets {} ask again."),
    ("failed", {}, "Wren gave {} no valid answer; nothing was shown."),
    (
        "failed",
        {"kind": "no_longer_allowed"},
        "{} was no longer allowed to ask Wren; nothing was shown.",
    ),
    ("lapsed", {}, "No worker could ask Wren for {} in time."),
    ("viewed", {"what": "memories", "ids": [3, 4, 5]}, "{} read memories #3, #4 and #5 of Wren."),
    ("viewed", {"what": "prompts", "ids": []}, "{} read the prompts of Wren."),
    ("viewed", {"what": "session", "ids": [3]}, "{} read a session of Wren: memory #3."),
    ("viewed", {"what": "search", "ids": []}, "{} read no memories of Wren."),
    (
        "ended",
        {"end_reason": "expired"},
        "{} may no longer read Wren's memories: time limit reached.",
    ),
    ("revoked", {}, "{} may no longer read Wren's memories: it is over."),
]


@pytest.mark.parametrize(("step", "data", "words"), ACCESS)
def test_a_record_of_access_names_who_asked(
    admin: User, agent: Agent, step: str, data: Data, words: str
) -> None:
    record = agent.record(f"memory_access_{step}", data={**data, "grant_user_id": admin.id})

    assert said(record) == words.format(admin.email)


def test_a_record_names_the_user_that_it_is_about(admin: User) -> None:
    colleague = person(account=admin.account)
    told = {
        "user_created": "{} was added by {}.",
        "user_invited": "A one-time link for {} was created by {}.",
        "user_joined": "{} accepted the invitation.",
        "user_updated": "{} was changed by {}: now viewer, not active.",
        "user_password_changed": "{} has a new password.",
        "user_signed_in": "{} signed in.",
        "user_signed_out": "{} signed out.",
    }

    for action, words in told.items():
        record = colleague.record(action, by=admin, data={"role": "viewer", "active": False})
        assert said(record) == words.format(colleague.email, admin.email)


def test_a_chosen_time_zone_is_no_change_of_role_or_state(admin: User, dashboard: Browser) -> None:
    for zone in ("Asia/Tokyo", ""):
        dashboard.submit("/profile/time-zone", {"time_zone": zone})

    chosen, reset = records("user_updated")
    assert said(chosen) == f"The pages of {admin.email} show times in Asia/Tokyo since then."
    assert said(reset) == (
        f"The pages of {admin.email} show times in the account's time zone since then."
    )


def test_every_action_can_be_told_of_an_empty_record(agent: Agent) -> None:
    needing_data = {"memory_refinement_dedup"}
    for action in ACTIONS - needing_data:
        assert said(agent.record(action)).endswith(".")
