"""Mail: of what users are told, what was sent to them, and the weekly letter."""

from flask import Response, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select

from refine import settings
from refine.jobs.letter import WEEK, Letter
from refine.models import Mail
from refine.rules.notices import KINDS
from refine.web import scope
from refine.web.forms import day_of, done
from refine.web.lists import page_of

inbox = scope.area("inbox")


@inbox.get("/inbox")
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


@inbox.post("/inbox")
def choose() -> ResponseReturnValue:
    user = scope.user()
    user.lock()
    chosen = request.form.getlist("told_of")
    user.told_of = [name for name in user.offered_mail if name in chosen]
    user.record("user_updated", by=user, data={"told_of": user.told_of})
    return done("Your choices are saved.", url_for("inbox.page"))


letter = scope.area("letter")


@letter.get("/letter", endpoint="page")
def show_letter() -> ResponseReturnValue:
    """Show the letter; as plain text to who prefers that, or with ``?as=text``."""
    found = Letter.of(scope.account_to_change(), day_of(request.args.get("week", "")))
    wants_text = request.accept_mimetypes.best_match(["text/html", "text/plain"]) == "text/plain"
    if wants_text or request.args.get("as") == "text":
        return Response(found.text, mimetype="text/plain")
    weeks = found.monday - WEEK, found.monday + WEEK
    return render_template("letter/page.html", letter=found, weeks=weeks)
