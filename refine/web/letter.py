"""The page of the weekly letter."""

from flask import Blueprint, Response, render_template, request
from flask.typing import ResponseReturnValue

from refine.jobs.letter import WEEK, Letter
from refine.web import scope
from refine.web.forms import day_of

pages = Blueprint("letter", __name__)


@pages.get("/letter")
def page() -> ResponseReturnValue:
    """Show the letter; as plain text to who prefers that, or with ``?as=text``."""
    letter = Letter.of(scope.account_to_change(), day_of(request.args.get("week", "")))
    wants_text = request.accept_mimetypes.best_match(["text/html", "text/plain"]) == "text/plain"
    if wants_text or request.args.get("as") == "text":
        return Response(letter.text, mimetype="text/plain")
    weeks = letter.monday - WEEK, letter.monday + WEEK
    return render_template("letter/page.html", letter=letter, weeks=weeks)
