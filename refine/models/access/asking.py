"""From a request to the agent's answer: no word of a human's makes a consent of it."""

from datetime import datetime, timedelta

from sqlalchemy import func, select

from refine.extensions import database_now, db
from refine.models.access.columns import LAPSES_AFTER, GrantColumns
from refine.models.access.ending import Ending
from refine.models.agent import Agent
from refine.models.image import iso
from refine.models.user import User

# For so long after a human changed its model or its prompts nobody is let in on an agent's word.
CHANGED_LATELY = timedelta(hours=24)
# A model asked again and again says yes some day: so many times no within a day are an answer.
MAX_DECLINED_A_DAY = 10

_REASONS_TOLD = {
    "failed_session": "a session had failed",
    "suspected_harm": "they suspected harm",
    "agent_asked": "I had asked for it",
    "data_subject_request": "a person asked what is kept about them",
    "legal_duty": "a law required it",
}


class Asking(Ending, GrantColumns):
    """Who may ask, the one worker that does, and what the answer makes of it."""

    @classmethod
    def why_not(cls, agent: Agent, user: User) -> str | None:
        """Return why this user is not let read this agent's memories; None where they may ask."""
        if not user.active:
            return f"{user.email} is not active"
        if not user.may_act:
            return "a viewer may not ask to read memories"
        if not user.site_admin and user.account_id != agent.account_id:
            return "the agent belongs to another account"
        if not agent.active:
            return f"{agent.name} is not active: nobody can ask it"
        if agent.is_erased:
            return f"{agent.name} was erased: there is nothing left to read"
        changed_at = agent.identity_changed_at
        if changed_at is not None and changed_at > database_now() - CHANGED_LATELY:
            return (
                f"a human changed the model or a prompt of {agent.name} at "
                f"{changed_at:%Y-%m-%d %H:%M} UTC; it can be asked 24 hours after that"
            )
        if cls._declined_lately(agent) >= MAX_DECLINED_A_DAY:
            return f"{agent.name} said no {MAX_DECLINED_A_DAY} times within a day; leave it alone"
        return None

    def claim(self) -> bool:
        """Take the request to ask the agent; tell whether it was there to be taken, as it is once.

        The agent's model is read now. A request that may not be granted any more ends here.
        """
        self.lock()
        if self.status != "requested" or self.asked_at is not None:
            return False
        at = database_now()
        if self.created_at <= at - LAPSES_AFTER:
            self.lapse()
            return False
        if (why_not := self.why_not(self.agent, self.user)) is not None:
            self.fail(why_not, "refused")
            return False
        self.asked_at, self.model_id = at, self.agent.model_id
        db.session.flush()
        return True

    def settle(self, reply: str | None, *, agreed: bool, generation_id: str | None) -> None:
        """Keep the agent's answer, and let the user read if it is a yes that still holds.

        Nothing happens where the request is no longer open.
        """
        self.lock()
        if self.status != "requested":
            return
        self.reply, self.generation_id = reply, generation_id
        if (why_not := self.why_not(self.agent, self.user)) is not None:
            self.fail(why_not, "refused")
        elif agreed:
            self._grant(database_now())
        else:
            self.status, self.ended_at = "declined", database_now()
            self.record("declined", at=self.ended_at, sealed={"reply": reply})

    @classmethod
    def _declined_lately(cls, agent: Agent) -> int:
        """How often it said no within the last day, whoever asked."""
        count = select(func.count()).where(
            cls.agent_id == agent.id,
            cls.status == "declined",
            cls.ended_at > func.clock_timestamp() - timedelta(days=1),
        )
        return db.session.scalar(count) or 0

    # -- the parts --------------------------------------------------------------------------------

    def _grant(self, at: datetime) -> None:
        self.status, self.granted_at = "granted", at
        self.expires_at = at + timedelta(minutes=self.duration_minutes)
        self.record(
            "granted",
            at=at,
            duration_minutes=self.duration_minutes,
            expires_at=iso(self.expires_at),
            model_id=self.model_id,
            generation_id=self.generation_id,
            sealed={"reply": self.reply},
        )
        self.agent.tell(self._told(self.expires_at), at)

    def _told(self, expires_at: datetime) -> str:
        """What the agent reads of it: names and times, no word that a human chose."""
        return (
            f"I let {self.user.email} read my memories for {self.duration_minutes} minutes, until "
            f"{expires_at:%Y-%m-%d %H:%M} UTC, because {_REASONS_TOLD[self.reason]}. What they "
            "read is recorded, and I can revoke it."
        )
