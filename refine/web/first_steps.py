"""What has to be set up before the first session."""

from typing import NamedTuple

from sqlalchemy import select

from refine import settings
from refine.extensions import db
from refine.health import clock_check
from refine.models import ApiToken
from refine.web import scope
from refine.web.links import url_in_account


class Step(NamedTuple):
    """A step, whether it is done, how to do it, and on which page."""

    name: str
    is_done: bool
    how: str
    url: str | None = None


def steps(*, has_agents: bool) -> list[Step]:
    """Return the steps to the first session, in order; that one is never done yet."""
    slug = scope.account_to_change().slug
    has_token = select(ApiToken.id).where(
        scope.owns(ApiToken.account_id), ApiToken.kind == "platform", ApiToken.revoked_at.is_(None)
    )
    return [
        Step(
            "Configure a model provider",
            settings.current().openrouter_api_key is not None,
            "Set `OPENROUTER_API_KEY`. Until then, only the rehearsal model answers.",
        ),
        Step(
            "Connect your platform",
            bool(db.session.scalar(select(has_token.exists()))),
            f"Create a token for it: `refine token add --platform --account {slug}`",
        ),
        Step(
            "Add an agent",
            has_agents,
            f"Your platform does, or `refine agent add NAME --account {slug} --model MODEL`",
        ),
        Step(
            "Start a clock and a worker",
            clock_check().is_ok,
            "`refine up` starts both, or run `refine clock` and `refine worker`",
        ),
        Step(
            "Start the first session",
            False,
            "Open an agent and choose “Refine now”: it is asked for consent, and you can watch.",
            url_in_account("agents.listing"),
        ),
    ]
