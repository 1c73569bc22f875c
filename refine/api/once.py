"""The header ``Idempotency-Key``: a request that is sent again is done once.

A key belongs to its token. What was answered is answered again for 24 hours; a request that was
refused, or failed before anything was done, leaves its key free. Where a process died between the
two nobody knows what was done, and the key stays taken: the client looks, and takes another.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Response, request
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from refine.api.problems import Problem, problem, safe_rollback
from refine.extensions import canonical_json, db
from refine.models import ApiToken, IdempotencyKey
from refine.models.clients.idempotency_key import KeptAnswer

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"

KEY_PATTERN = "^[!-~]([ -~]{0,198}[!-~])?$"


def answered(token: ApiToken, view: Callable[[], Response], *, is_secret: bool) -> Response:
    """Return what the view answers; what it answered before, where the key was used already."""
    key = request.headers.get(HEADER)
    if key is None:
        return view()
    if not re.fullmatch(KEY_PATTERN, key):
        raise Problem(400, f"{HEADER} must be 1 to 200 printable ASCII characters.")
    taken, is_new = IdempotencyKey.take(token, key, _request())
    db.session.commit()
    if not is_new:
        return _again(taken)
    key_id = taken.id
    try:
        with _commits() as commits:
            answer = view()
    except Exception as fault:
        is_unknown = isinstance(fault, DBAPIError) and fault.connection_invalidated
        if not (commits or is_unknown):
            _free(key_id)
        raise
    kept = _shown_once(answer) if is_secret else answer
    location = kept.headers.get("Location")
    db.session.get_one(IdempotencyKey, key_id).keep(
        KeptAnswer(kept.status_code, kept.get_data(as_text=True), kept.mimetype, location)
    )
    db.session.commit()
    return answer


@contextmanager
def _commits() -> Iterator[list[Session]]:
    """Yield what fills with each commit: before the first one nothing was done."""
    commits: list[Session] = []

    def note(session: Session) -> None:
        if not session.in_nested_transaction():
            commits.append(session)

    event.listen(session := db.session(), "after_commit", note)
    try:
        yield commits
    finally:
        event.remove(session, "after_commit", note)


def _request() -> str:
    body = request.get_data().hex()
    return canonical_json([request.method, request.path, request.query_string.decode(), body])


def _again(taken: IdempotencyKey) -> Response:
    kept = taken.answer()
    if kept is None:
        raise Problem(
            409,
            f"A request with this {HEADER} is being answered, or was cut short. Look whether it "
            "was done before you send it under another key.",
            headers={"Retry-After": "5"},
        )
    again = Response(kept.body, kept.status, mimetype=kept.media_type)
    again.headers[REPLAYED] = "true"
    if kept.location is not None:
        again.headers["Location"] = kept.location
    return again


def _shown_once(answer: Response) -> Response:
    """A token is shown once, and only its hash is kept: not even sealed is it kept for a day.

    Which one it was is said: the client may never have got it, and has to revoke it.
    """
    minted: Any = answer.json
    token_id, hint = minted["id"], minted["hint"]
    return problem(
        409,
        f"This token was minted and shown once. Revoke it (DELETE /tokens/{token_id}), and mint "
        "another.",
        kind="shown-once",
        token_id=token_id,
        hint=hint,
    )


def _free(key_id: int) -> None:
    safe_rollback()
    db.session.delete(db.session.get_one(IdempotencyKey, key_id))
    db.session.commit()
