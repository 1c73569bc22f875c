"""Imports of memory files: read within the request and never stored."""

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
from refine.transfer.report import Report
from refine.web import scope
from refine.web.uploads import LARGEST_FILE_MEGABYTES
from refine.web.words import IMPORT_FORMATS

pages = Blueprint("importing", __name__)

_TOO_LARGE = (
    f"the file is larger than {LARGEST_FILE_MEGABYTES} MB; "
    "import larger files on the server, with `refine import`"
)


@pages.get("/agents/<int:agent_id>/import")
@scope.acting
def form(agent_id: int) -> str:
    return _page(scope.agent_or_404(agent_id), form={})


@pages.post("/agents/<int:agent_id>/import")
@scope.acting
def take_in(agent_id: int) -> ResponseReturnValue:
    """Import the file, or only check it, and show the report."""
    agent = scope.agent_or_404(agent_id)
    db.session.commit()  # no transaction is held open during the upload
    try:
        csrf.protect()
        upload = _Upload.of_form()
        report = upload.check() if upload.is_check else upload.import_into(agent)
    except RequestEntityTooLarge:
        return _page(agent, form={}, error=_TOO_LARGE), 413
    except (InvalidValue, Refused) as error:
        db.session.rollback()
        return _page(agent, form=request.form, error=error), 422
    code = 422 if report.is_failure else 200
    return _page(agent, form=request.form, report=report, is_check=upload.is_check), code


# It checks the token itself, once viewers are refused: only then is the file read.
csrf.exempt(take_in)


class _Upload(NamedTuple):
    """What the form sent. The file's name is ignored, as it may reveal content."""

    read: Read
    format: str
    memory_type: str
    is_strict: bool
    is_check: bool

    @classmethod
    def of_form(cls) -> "_Upload":
        """Read the form; InvalidValue for values that it does not offer."""
        form, file = request.form, request.files.get("file")
        if not file:
            raise InvalidValue("choose a file")
        format_ = _one_of(READERS, "format")
        return cls(
            read=partial(rows_of, cast(BinaryIO, file.stream), format_),
            format=format_,
            memory_type=_one_of(MEMORY_TYPES, "memory_type"),
            is_strict="strict" in form,
            is_check="check" in form,
        )

    def check(self) -> Report:
        return check(self.read, memory_type=self.memory_type)

    def import_into(self, agent: Agent) -> Report:
        """Import the file as the signed-in user, and return what became of it."""
        return import_memories(
            agent,
            self.read,
            source=self.format,
            memory_type=self.memory_type,
            strict=self.is_strict,
            user=scope.user(),
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
        memory_types=[(memory_type, memory_type) for memory_type in MEMORY_TYPES],
        largest_megabytes=LARGEST_FILE_MEGABYTES,
        **shown,
    )
