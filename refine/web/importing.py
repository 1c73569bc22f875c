"""Imports of memory files: read within the request and never stored."""

from functools import partial
from itertools import islice
from typing import Any, BinaryIO, cast

from flask import Blueprint, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import RequestEntityTooLarge

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import csrf, db
from refine.faults import status_of
from refine.models import Agent
from refine.models.ledger import MEMORY_TYPES
from refine.transfer.formats import READERS, rows_of
from refine.transfer.importing import Read, check, import_memories
from refine.transfer.report import Report
from refine.web import scope
from refine.web.uploads import LARGEST_FILE_MEGABYTES
from refine.web.words import IMPORT_FORMATS

pages = Blueprint("importing", __name__)

MAX_ROWS = 20_000
MAX_VALUES = 500_000  # vectors of some hundred memories

_TOO_LARGE = (
    f"the file is larger than {LARGEST_FILE_MEGABYTES} MB; "
    "import larger files on the server, with `refine import`"
)


@pages.get("/agents/<int:agent_id>/import")
@scope.admins_only
def form(agent_id: int) -> str:
    return _page(scope.agent_or_404(agent_id), form={})


@pages.post("/agents/<int:agent_id>/import")
@scope.admins_only
def import_file(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    db.session.commit()  # no transaction is held open during the upload
    try:
        csrf.protect()
        is_check = "check" in request.form
        report = _read_upload(agent, only_check=is_check)
    except RequestEntityTooLarge as error:
        return _page(agent, form={}, error=_TOO_LARGE), status_of(error)
    except (InvalidValue, Refused) as error:
        db.session.rollback()
        return _page(agent, form=request.form, error=error), status_of(error)
    code = 422 if report.is_failure else 200
    return _page(agent, form=request.form, report=report, is_check=is_check), code


# It checks the token itself, once viewers are refused: only then is the file read.
csrf.exempt(import_file)


def _read_upload(agent: Agent, *, only_check: bool) -> Report:
    """Import the file, or only check it. Its name is ignored, as it may reveal content."""
    file = request.files.get("file")
    if not file:
        raise InvalidValue("choose a file")
    format_, memory_type = _one_of(READERS, "format"), _one_of(MEMORY_TYPES, "memory_type")
    stream = cast(BinaryIO, file.stream)
    file_agent = request.form.get("file_agent", "").strip() or None
    read = partial(rows_of, stream, format_, file_agent=file_agent)
    _refuse_too_many(stream, read)
    if only_check:
        return check(read, memory_type=memory_type)
    return import_memories(
        agent,
        read,
        source=format_,
        memory_type=memory_type,
        strict="strict" in request.form,
        user=scope.user(),
    )


def _refuse_too_many(stream: BinaryIO, read: Read) -> None:
    """Refuse a file that takes long to read though it is small, before anything is written."""
    contents = stream.read()
    values = sum(contents.count(mark) for mark in (b",", b"[", b"{", b"\n"))
    rows = islice(read(), MAX_ROWS + 1) if values <= MAX_VALUES else ()
    if values > MAX_VALUES or sum(1 for _ in rows) > MAX_ROWS:
        raise InvalidValue(
            f"the file has more than {MAX_ROWS:,} rows, or {MAX_VALUES:,} values; import larger "
            "files on the server, with `refine import`"
        )


def _one_of(allowed: Any, field: str) -> str:
    value = request.form.get(field, "")
    if value not in allowed:
        raise InvalidValue(f"{field} must be one of {', '.join(allowed)}")
    return value


def _page(agent: Agent, **shown: Any) -> str:
    kept = agent.ledger.composition(clock.now())
    return render_template(
        "agent/import.html",
        agent=agent,
        has_memories=any((kept.core, kept.journal_shown, kept.journal_expired, kept.discarded)),
        formats=IMPORT_FORMATS,
        memory_types=[(memory_type, memory_type) for memory_type in MEMORY_TYPES],
        largest_megabytes=LARGEST_FILE_MEGABYTES,
        **shown,
    )
