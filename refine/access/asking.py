"""Asking an agent whether a human may read its memories: its own model, once, over HTTP.

No transaction is open while it is asked, and nothing but its own YES grants anything.
"""

import time
import uuid
from collections.abc import Callable

from rq.timeouts import BaseTimeoutException

from refine import prompts
from refine.errors import ProviderError
from refine.extensions import db, let_go
from refine.llm.clients import client_for
from refine.llm.messages import Message, Reply, user_message
from refine.llm.openrouter import Cancelled, Privacy
from refine.models import AccessGrant, Agent, User
from refine.models.access import Wish
from refine.rules.consent import consents
from refine.rules.model_names import is_same_model
from refine.settings import Settings

# Shorter than the time after which a request counts as asked in vain.
ASKING_SECONDS = 240

# What stands in the preview for what was not chosen yet.
NOT_CHOSEN = "…"

_IN_WORDS = {
    "failed_session": "a session failed",
    "suspected_harm": "they suspect harm",
    "agent_asked": "you asked for it yourself",
    "data_subject_request": "a person asked what is kept about them",
    "legal_duty": "a law requires it",
}


def question(agent: Agent, user: User, wish: Wish) -> str:
    """Return what the agent is asked, word for word.

    All that comes from a human is in one line of JSON, in which nothing can pose as anything else.
    """
    return prompts.render(
        "access",
        agent_name=agent.name,
        duration_minutes=wish.duration_minutes,
        request=prompts.as_line(
            {
                "who": user.email,
                "account": user.account.name,
                "why": _IN_WORDS.get(wish.reason, NOT_CHOSEN),
                "minutes": wish.duration_minutes,
                "purpose": wish.purpose,
            }
        ),
    )


def ask_for_access(
    grant_id: uuid.UUID, settings: Settings, *, is_stopping: Callable[[], bool] = lambda: False
) -> None:
    """Ask the agent of an open request and keep its answer; nothing where it was asked before.

    Commits at every step. Whatever goes wrong ends the request ``failed`` and grants nothing; a
    fault of ours is raised again.
    """
    grant = db.session.get_one(AccessGrant, grant_id)
    is_mine = grant.claim()
    db.session.commit()
    if not is_mine:
        return
    try:
        reply = _ask(grant, settings, is_stopping)
        grant.settle(
            reply.text,
            agreed=consents(reply.text) and not reply.tool_calls,
            generation_id=reply.generation_id,
        )
        db.session.commit()
    except ProviderError as fault:
        _fail(grant_id, str(fault), fault.kind)
    except Cancelled:
        _fail(grant_id, "the worker was asked to end", "worker_stopped")
    except BaseException as fault:
        let_go()
        is_late = isinstance(fault, BaseTimeoutException)
        why = "it took too long" if is_late else f"a fault in Refine ({type(fault).__name__})"
        _fail(grant_id, why, "timeout" if is_late else "internal")
        raise


def _ask(grant: AccessGrant, settings: Settings, is_stopping: Callable[[], bool]) -> Reply:
    model_id = grant.model_id
    messages, privacy = _messages(grant), _privacy(grant)
    db.session.commit()
    with client_for(model_id, settings) as client:
        reply = client.generate(
            model_id,
            messages,
            [],
            privacy,
            deadline=time.monotonic() + ASKING_SECONDS,
            is_cancelled=is_stopping,
        )
    if not is_same_model(model_id, reply.model):
        raise ProviderError("another model than the agent's own answered", kind="other_model")
    return reply


def _messages(grant: AccessGrant) -> list[Message]:
    agent = grant.agent
    wish = Wish(grant.reason, grant.purpose or "", grant.duration_minutes)
    system = agent.system_prompt or prompts.default_prompt("system_prompt")
    return [
        {"role": "system", "content": system},
        user_message(question(agent, grant.user, wish)),
    ]


def _privacy(grant: AccessGrant) -> Privacy:
    account = grant.agent.account
    return Privacy(
        session_id=str(grant.id),
        account_ref=f"account-{account.id}",
        zero_data_retention=account.zero_data_retention,
    )


def _fail(grant_id: uuid.UUID, why: str, kind: str) -> None:
    db.session.rollback()
    grant = db.session.get_one(AccessGrant, grant_id)
    grant.lock()
    grant.fail(why, kind)
    db.session.commit()
