"""The header ``Idempotency-Key``: a repeated request is carried out only once.

A key belongs to a token. Its response is repeated for ``ANSWERS_KEPT_FOR``. A request that is
refused, or fails before anything is committed, frees its key. If a process dies in between, the
outcome is unknown and the key stays in use: the client has to check, and then use another one.
"""

import re
from collections.abc import Callable
from typing import Any

from flask import Response, request
from sqlalchemy import delete, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from refine.api.problems import Problem, problem
from refine.extensions import canonical_json, db, safe_rollback
from refine.faults import RETRY_AFTER_SECONDS
from refine.models import ApiToken, IdempotencyKey
from refine.models.clients.idempotency_key import StoredResponse

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"

MAX_KEY_CHARACTERS = 200
KEY_PATTERN = f"^[!-~]([ -~]{{0,{MAX_KEY_CHARACTERS - 2}}}[!-~])?$"
KEY_RULE = f"1 to {MAX_KEY_CHARACTERS} printable ASCII characters"


def respond_once(token: ApiToken, view: Callable[[], Response], *, is_secret: bool) -> Response:
    """Return the view's response, or the stored one if the key was used before."""
    key = request.headers.get(HEADER)
    if key is None:
        return view()
    if not re.fullmatch(KEY_PATTERN, key):
        raise Problem(400, f"{HEADER} must be {KEY_RULE}.")
    query, body = request.query_string.decode(), request.get_data().hex()
    sent = canonical_json([request.method, request.path, query, body])
    taken, is_new = IdempotencyKey.reserve(token, key, sent)
    db.session.commit()
    if not is_new:
        return _replay(taken)
    key_id = taken.id
    watch = _CommitWatch()
    try:
        answer = view()
    except Exception as error:
        # if the connection broke during a commit, the commit may have succeeded
        is_in_doubt = isinstance(error, DBAPIError) and error.connection_invalidated
        if not (watch.has_committed or is_in_doubt):
            safe_rollback()
            db.session.execute(delete(IdempotencyKey).where(IdempotencyKey.id == key_id))
            db.session.commit()
        raise
    kept = _without_secret(answer) if is_secret else answer
    row = db.session.get(IdempotencyKey, key_id)
    if row is not None:  # deleted meanwhile: the request took longer than answers are kept
        row.store(StoredResponse(kept.status_code, kept.get_data(as_text=True), kept.mimetype))
    db.session.commit()
    return answer


class _CommitWatch:
    """Notices whether anything was committed since, until the request ends."""

    def __init__(self) -> None:
        self.has_committed = False
        event.listen(db.session(), "after_commit", self._note)  # the session ends with the request

    def _note(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self.has_committed = True


def _replay(taken: IdempotencyKey) -> Response:
    kept = taken.stored_response()
    if kept is None:
        raise Problem(
            409,
            f"A request with this {HEADER} is still running, or was interrupted. Check whether "
            "it was carried out before you repeat it with another key.",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    replayed = Response(kept.body, kept.status, mimetype=kept.media_type)
    replayed.headers[REPLAYED] = "true"
    return replayed


def _without_secret(answer: Response) -> Response:
    """Return the response to store for a created token: its id, for revoking it, but no secret."""
    minted: Any = answer.json
    return problem(
        409,
        "This token was created and shown once. Revoke it (DELETE /tokens/"
        f"{minted['id']}) and create another.",
        kind="shown-once",
        token_id=minted["id"],
        hint=minted["hint"],
    )
