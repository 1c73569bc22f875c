"""The header ``Idempotency-Key``: a repeated request is carried out only once.

A key belongs to a token. Its answer is repeated for ``ANSWERS_KEPT_FOR``. Key, changes and answer
are one transaction, so a request that is refused, or fails, frees its key. An operation that
commits on its way stores its answer afterwards: if its process dies in between, the outcome is
unknown and the key stays in use. The client has to check, and then use another one.
"""

import re
from collections.abc import Callable
from typing import Any

from flask import Response, request

from refine.api.problems import Problem, problem
from refine.extensions import canonical_json
from refine.faults import RETRY_AFTER_SECONDS
from refine.models import ApiToken, IdempotencyKey
from refine.models.clients.idempotency_key import StoredResponse

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"

MAX_KEY_CHARACTERS = 200
KEY_PATTERN = f"^[!-~]([ -~]{{0,{MAX_KEY_CHARACTERS - 2}}}[!-~])?$"
KEY_RULE = f"1 to {MAX_KEY_CHARACTERS} printable ASCII characters"


def respond_once(token: ApiToken, answer: Callable[[], Response], *, is_secret: bool) -> Response:
    """Return the answer, or the stored one if the key of this POST was used before."""
    key = request.headers.get(HEADER)
    if key is None or request.method != "POST":
        return answer()
    if not re.fullmatch(KEY_PATTERN, key):
        raise Problem(400, f"{HEADER} must be {KEY_RULE}.")
    query, body = request.query_string.decode(), request.get_data().hex()
    sent = canonical_json([request.method, request.path, query, body])
    taken, is_new = IdempotencyKey.reserve(token, key, sent)
    if not is_new:
        return _replay(taken)
    answered = answer()
    kept = _without_secret(answered) if is_secret else answered
    taken.store(StoredResponse(kept.status_code, kept.get_data(as_text=True), kept.mimetype))
    return answered


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
