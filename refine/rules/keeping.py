"""How long things are kept after they end. What is not listed here is kept for ever."""

from datetime import timedelta

# Stored answers to API requests, by their idempotency keys; counted from the request.
ANSWERS_KEPT_FOR = timedelta(hours=24)
# Counted from their end, or from when they expired.
SIGN_INS_KEPT_FOR = timedelta(days=30)
INVITATIONS_KEPT_FOR = timedelta(days=30)
