"""Tells people and webhooks what began, happened or is over, each once."""

from datetime import date, datetime, timedelta

import structlog
from flask import current_app

from refine import settings
from refine.extensions import db
from refine.jobs.letter import WEEK, Letter
from refine.models import Account, Mail, PeriodicWork
from refine.models.mail import to_be_told
from refine.models.notice import News, look, tell_webhooks
from refine.rules.notices import KINDS

# It is told in whichever tick, or worker, comes next.
LOOKS_EVERY = timedelta(minutes=4)

_log = structlog.get_logger(__name__)


def tell(at: datetime) -> None:
    """Queue what is to be told; other processes leave it to the first."""
    if PeriodicWork.begin("notices", every=LOOKS_EVERY, at=at) is None:
        return
    for news in look(at):
        try:
            with db.session.begin_nested():
                tell_webhooks(news, at)
                if settings.current().mail_url is not None:
                    _queue_mail(news, at)
        except Exception as fault:  # what cannot be told keeps nothing else back
            kind = news.notices[0].kind
            _log.error("could not tell", kind=kind, fault=type(fault).__name__)
    PeriodicWork.reached("notices", None)


def _queue_mail(news: News, at: datetime) -> None:
    kind, account_id, cause, _ = news.notices[0].state
    if not (users := to_be_told(kind, account_id)):
        return
    account = db.session.get(Account, account_id) if account_id is not None else None
    if kind == "letter" and account is not None:
        text = Letter.of(account, date.fromisoformat(cause) - WEEK).text
    else:
        text = current_app.jinja_env.get_template("mail/news.txt").render(
            news=news,
            state=news.notices[0].state,
            kind=KINDS[kind],
            account=account,
            public_url=settings.current().public_url,
        )
    about = {"kind": kind, "event_id": news.event_id, "account_id": account_id}
    Mail.queue(users, at, subject=text.partition("\n")[0], text=text, **about)
