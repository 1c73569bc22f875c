"""Programs that use the HTTP API: their tokens, and what they have sent already."""

from refine.models.clients.api_token import ApiToken as ApiToken
from refine.models.clients.idempotency_key import IdempotencyKey as IdempotencyKey
