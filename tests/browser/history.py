"""Half a year in the life of an installation: every outcome, long lists, short and long stories."""

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import time_machine

from refine import clock
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    AgentMemory,
    ApiToken,
    Delivery,
    Invitation,
    PeriodicWork,
    RefinementSession,
    User,
)
from refine.models.agent import configuring
from refine.models.people.user import SavedView
from refine.models.runs.access.asking_rules import AccessTerms
from refine.models.runs.session.session import EndStatus, Trigger
from refine.refinement.time_machine import undo
from refine.rules.pacing import DELIVERY_PAUSES
from refine.tools import RefinementTool, SaveMemoryTool
from tests import factories

LARGE, SMALL = "anthropic/claude-sonnet-4.5", "mistralai/mistral-small-3.2"
OTHERS = (
    *("Halyard", "Fathom", "Trema", "Cairn", "Loam", "Crumb", "Sedge", "Marram", "Tern"),
    *("Skerry", "Ebb", "Thrift", "Curlew", "Samphire", "Plover", "Dunlin"),
)

_ENDINGS: tuple[EndStatus, ...] = ("completed", "declined", "skipped")

# What a session of Wren sets out to remove, week by week.
_PLANS = itertools.cycle((8, 10, 5, 9, 10, 0, 7))

_UNREACHABLE = "the provider cannot be reached (HTTP 503), after 3 attempts"

_ASKED = {"cost_usd": Decimal("0.0042"), "prompt_tokens": 2_310, "completion_tokens": 188}

_figure = itertools.cycle((41, 27, 63, 35, 52, 30, 74, 46))
_MOST_TOKENS_OF_ONE = 74


@dataclass
class History:
    """What the pages are about."""

    admin: User
    wren: Agent
    petrel: Agent
    toggled: AgentMemory
    completed: RefinementSession
    obstacles_among: RefinementSession
    rolled_back: RefinementSession
    declined: RefinementSession
    failed: RefinementSession
    undone: RefinementSession
    newcomer: Agent
    token: ApiToken
    live: RefinementSession
    queued: RefinementSession
    invitation: str
    may_read: AccessGrant
    was_asked: AccessGrant
    has_read: AccessGrant


def platform_admin() -> User:
    """Who runs the platform, and may see and do everything; not yet committed."""
    account = factories.account(name="Saltmarsh", slug="saltmarsh", time_zone="Europe/Dublin")
    return factories.user(account=account, email="admin@example.org", site_admin=True)


def lived(admin: User, *, weeks: int = 3, saves_a_week: int = 3, others: int = 4) -> History:
    """Live through it, with sessions on Mondays, and return what came of it; committed."""
    account, now = admin.account, clock.now()
    factories.user(account=account, email="ines.moreau@example.org", role="viewer")
    factories.user(account=account, email="former.colleague@example.org", active=False)
    factories.account(name="Harbour Lights", slug="harbour-lights")
    account.next_due_at = account.next_slot(now)
    admin.save_view(SavedView("agents.listing", "Over budget", "state=over_budget"))
    account.monthly_cost_cap_usd = Decimal("25.00")
    monday = account.last_slot(now - timedelta(days=1))
    factories.endpoint(account, "https://hooks.example.org/refine/saltmarsh")
    with time_machine.travel(now - timedelta(weeks=weeks), tick=False):
        wren = _agent(account, "Wren", 12 + 5 * saves_a_week, core_token_budget=2_600)
        petrel = _agent(account, "Petrel", 8, core_token_budget=900)
        crowd = [_agent(account, name, 6 + len(name)) for name in OTHERS[:others]]
    for week in reversed(range(weeks)):
        slot = monday - timedelta(weeks=week)
        _saves(wren, slot - timedelta(days=7), saves_a_week)
        completed = _session(wren, slot, "weekly", deletions=max(1, next(_PLANS)))
    for agent, ending in zip(crowd, itertools.cycle(_ENDINGS), strict=False):
        _ended(agent, monday + timedelta(minutes=4), ending, slot_at=monday)
    declined = _ended(crowd[1], monday + timedelta(minutes=9), "declined")
    failed = _ended(crowd[0], now - timedelta(hours=2), "failed")
    undone = _session(petrel, now - timedelta(days=6, hours=3), "over_budget", deletions=1)
    with time_machine.travel(now - timedelta(days=5, hours=3), tick=False):
        undo(undone, through="dashboard", user=admin)
        db.session.commit()
    rolled_back = _session(petrel, now - timedelta(days=2), "cli", deletions=9, is_wild=True)
    obstacles_among = _session(wren, now - timedelta(hours=5), "manual", deletions=0, protects=True)
    with time_machine.travel(now - timedelta(hours=1), tick=False):
        protected = next(m for m in db.session.scalars(wren.ledger.core()) if m.constitutional)
        protected.set_constitutional(False, user=admin)
        db.session.commit()
    _between_sessions(wren, now)
    _between_sessions(petrel, now, reflects=False)
    _delivered(now)
    return History(
        *(admin, wren, petrel, protected, completed, obstacles_among),
        *(rolled_back, declined, failed, undone),
        **_now(account, now),
        **_access(admin, petrel, crowd[0], wren),
    )


def _delivered(now: datetime) -> None:
    """Most events arrived, of the last ones one waits and one was given up."""
    *arrived, given_up, waiting = db.session.scalars(db.select(Delivery).order_by(Delivery.id))
    given_up.attempts, waiting.attempts = len(DELIVERY_PAUSES), 2
    db.session.flush()
    for each, answer in [*((each, "204") for each in arrived), (given_up, "ConnectTimeout")]:
        each.note(now, answer)
    waiting.note(now, "503")
    db.session.commit()


def _access(admin: User, petrel: Agent, asked: Agent, read: Agent) -> dict[str, AccessGrant]:
    """What agents were asked for, and what they granted."""
    why = "to find out why its last session had to be undone"
    other = factories.user(account=admin.account, email="sam.okafor@example.org")
    has_read = factories.live_grant(read, other, purpose=why, reason="failed_session")
    has_read.end(user=other)
    terms = AccessTerms.checked(reason="failed_session", purpose=why, duration_minutes=60)
    grants = {
        "may_read": factories.live_grant(petrel, admin, purpose=why, reason="failed_session"),
        "was_asked": AccessGrant.request(asked, other, terms),
        "has_read": has_read,
    }
    db.session.commit()
    return grants


def _now(account: Account, now: datetime) -> dict[str, Any]:
    """What goes on at this moment."""
    PeriodicWork.note("tick", now)
    invited = factories.user(account=account, email="new.colleague@example.org")
    invited.password_hash = None
    newcomer = _agent(account, "Whimbrel", 2)
    # in kept memories there is a tag of each kind, and something from the last week
    factories.memory(newcomer, memory_type="journal")
    factories.memory(newcomer, tags=["voice", "relational"])
    token, _ = ApiToken.mint(account=account, agent=newcomer)
    ApiToken.mint(account=account)[0].revoke()
    live = _claimed(_agent(account, "Turnstone", 16), "manual")
    RefinementTool(live).execute("delete", id=_ids(live.agent)[3])
    queued = RefinementSession.queue(_agent(account, "Sanderling", 5), "manual")
    secret = Invitation.issue(invited)
    db.session.commit()
    return {
        "newcomer": newcomer,
        "token": token,
        "live": live,
        "queued": queued,
        "invitation": secret,
    }


def _agent(account: Account, name: str, memories: int, **fields: object) -> Agent:
    model = LARGE if len(name) % 2 else SMALL
    made = factories.agent(account=account, name=name, model_id=model, **fields)
    factories.ledger(made, *itertools.islice(_figure, memories))
    db.session.commit()
    return made


def _saves(agent: Agent, since: datetime, number: int) -> None:
    for position in range(number):
        with time_machine.travel(since + timedelta(days=6 * (position + 1) / number), tick=False):
            SaveMemoryTool(agent).execute(factories.text_of(next(_figure)), memory_type="core")


def _session(
    agent: Agent,
    at: datetime,
    trigger: Trigger,
    *,
    deletions: int,
    protects: bool = False,
    is_wild: bool = False,
) -> RefinementSession:
    """A session that does so much, as far as it may, or too much, if it is wild."""
    with time_machine.travel(at, tick=False) as traveller:
        session = _claimed(agent, trigger)
        session.slot_at = at if trigger == "weekly" else None
        tool, ids = RefinementTool(session), _ids(agent)
        if protects:
            tool.execute("protect", id=ids[0])
        for id_ in ids[1 : 1 + deletions]:
            room = session.removable_tokens - session.removed_tokens
            if is_wild or room > _MOST_TOKENS_OF_ONE:
                traveller.shift(7)
                tool.execute("delete", id=id_)
        traveller.shift(5)
        tool.execute("complete", summary="I put aside what was there twice.")
    return session


def _ended(
    agent: Agent, at: datetime, status: EndStatus, slot_at: datetime | None = None
) -> RefinementSession:
    """A session that ended so, without a change."""
    with time_machine.travel(at, tick=False) as traveller:
        session = _claimed(agent, "weekly")
        session.slot_at, session.consented_at = slot_at, None
        traveller.shift(12)
        kind = "provider_unreachable" if status == "failed" else None
        reason = _UNREACHABLE if kind else f"it was {status}"
        session.finish(status, reason, error_kind=kind)
        db.session.commit()
    return session


def _between_sessions(agent: Agent, now: datetime, *, reflects: bool = True) -> None:
    """A week of reflections and conversations, some that failed, and one that waits."""
    if reflects:
        configuring.author(agent, "memory_reflection_prompt", "Keep what I would miss in a month.")
        for days in range(1, 8):
            at = now - timedelta(days=days, hours=3)
            factories.ended_task(agent, "reflection", at=at, memories_kept=2, **_ASKED)
    for hours, status, kind in (
        (53, "completed", None),
        (9, "incomplete", "timeout"),
        (4, "failed", "provider_unreachable"),
    ):
        at = now - timedelta(hours=hours)
        reason = None if kind is None else _UNREACHABLE
        factories.ended_task(
            agent, "extraction", status, at=at, reason=reason, error_kind=kind, **_ASKED
        )
    put_off = factories.extraction(agent, at=now - timedelta(minutes=8))
    put_off.claim(now - timedelta(minutes=2))
    put_off.give_up(_UNREACHABLE, "provider_unreachable", at=now - timedelta(minutes=1))
    factories.extraction(agent, at=now - timedelta(minutes=2))
    db.session.commit()


def _claimed(agent: Agent, trigger: Trigger) -> RefinementSession:
    session = RefinementSession.start(agent, trigger)
    session.consented_at = clock.now()
    session.llm_calls, session.cost_usd = 6, Decimal("0.0314")
    session.prompt_tokens, session.cached_tokens = 18_240, 15_120
    session.completion_tokens = 611
    db.session.commit()
    return session


def _ids(agent: Agent) -> list[int]:
    return [memory.id for memory in db.session.scalars(agent.ledger.core())]
