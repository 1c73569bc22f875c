"""A user's mail: of what they are told, and what was sent to them."""

from flask import Blueprint, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select

from refine import settings
from refine.models import Mail
from refine.rules.notices import KINDS
from refine.web import scope
from refine.web.forms import done
from refine.web.lists import page_of

pages = Blueprint("inbox", __name__)


@pages.get("/inbox")
def page() -> str:
    user = scope.user()
    listed = page_of(select(Mail).where(Mail.user_id == user.id).order_by(Mail.id.desc()))
    return render_template(
        "inbox/page.html",
        page=listed,
        mails=[row[0] for row in listed.rows],
        offered=[(name, KINDS[name].choice) for name in user.offered_mail],
        wanted=user.wanted_mail,
        is_set=settings.current().mail_url is not None,
    )


@pages.post("/inbox")
def choose() -> ResponseReturnValue:
    user = scope.user()
    user.lock()
    chosen = request.form.getlist("told_of")
    user.told_of = [name for name in user.offered_mail if name in chosen]
    user.record("user_updated", by=user, data={"told_of": user.told_of})
    return done("Your choices are saved.", url_for("inbox.page"))
