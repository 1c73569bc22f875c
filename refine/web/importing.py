"""Memories that an admin brings along in a file: read within the request, kept nowhere else."""

from functools import partial
from typing import Any, BinaryIO, NamedTuple, cast

from flask import Blueprint, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import RequestEntityTooLarge

from refine.errors import InvalidValue, Refused
from refine.extensions import csrf, db
from refine.models import Agent
from refine.models.ledger import MEMORY_TYPES
from refine.transfer.formats import READERS, rows_of
from refine.transfer.importing import Read, check, import_memories
from refine.web import scope
from refine.web.uploads import LARGEST_FILE_MEGABYTES
from refine.web.words import IMPORT_FORMATS

pages = Blueprint("importing", __name__)

_TOO_LARGE = (
    f"the file has more than {LARGEST_FILE_MEGABYTES} MB; "
    "larger ones are imported on the server, with `refine import`"
)


@pages.get("/agents/<int:agent_id>/import")
@scope.acting
def form(agent_id: int) -> str:
    """Ask for the file."""
    return _page(scope.agent_or_404(agent_id), form={})


@pages.post("/agents/<int:agent_id>/import")
@scope.acting
def take_in(agent_id: int) -> ResponseReturnValue:
    """Import the file, or only say what of it could be read, and show what became of it."""
    agent = scope.agent_or_404(agent_id)
    db.session.commit()  # no transaction is open while the file comes in
    try:
        csrf.protect()
        sent = _Sent.of_form()
        if sent.is_check:
            report = check(sent.read, memory_type=sent.memory_type)
        else:
            report = import_memories(
                agent,
                sent.read,
                source=sent.format,
                memory_type=sent.memory_type,
                strict=sent.is_strict,
                user=scope.user(),
            )
    except RequestEntityTooLarge:
        return _page(agent, form={}, error=_TOO_LARGE), 413
    except (InvalidValue, Refused) as error:
        db.session.rollback()
        return _page(agent, form=request.form, error=error), 422
    code = 422 if report.is_failure else 200
    return _page(agent, form=request.form, report=report, is_check=sent.is_check), code


csrf.exempt(take_in)  # which asks itself: who may not act is refused before the file is read


class _Sent(NamedTuple):
    """What the form was sent with. The file's name is not looked at: it may say something."""

    read: Read
    format: str
    memory_type: str
    is_strict: bool
    is_check: bool

    @classmethod
    def of_form(cls) -> "_Sent":
        """Read it; InvalidValue for what the form does not offer."""
        form, upload = request.form, request.files.get("file")
        if not upload:
            raise InvalidValue("choose a file")
        format_ = _one_of(READERS, "format")
        return cls(
            read=partial(rows_of, cast(BinaryIO, upload.stream), format_),
            format=format_,
            memory_type=_one_of(MEMORY_TYPES, "memory_type"),
            is_strict="strict" in form,
            is_check="check" in form,
        )


def _one_of(allowed: Any, field: str) -> str:
    value = request.form.get(field, "")
    if value not in allowed:
        raise InvalidValue(f"{field} must be one of {', '.join(allowed)}")
    return value


def _page(agent: Agent, **shown: Any) -> str:
    return render_template(
        "agent/import.html",
        agent=agent,
        formats=IMPORT_FORMATS,
        memory_types=MEMORY_TYPES,
        largest_megabytes=LARGEST_FILE_MEGABYTES,
        **shown,
    )
