"""Webhooks: where the events of a platform's account are sent, with ids and figures alone."""

from typing import Annotated

from pydantic import Field

from refine.api.routing import operation
from refine.api.rows import Page, PageQuery, account_row_or_404, page_of, rows_of_account
from refine.api.schemas import Body, Omittable, Resource, Time
from refine.models import ApiToken, Endpoint
from refine.rules.events import EventKind


class NewWebhook(Body):
    """A webhook to add."""

    url: Annotated[str, Field(examples=["https://example.org/refine"])]
    """`https://…`; no private address."""
    kinds: Annotated[list[EventKind] | None, Field(min_length=1), Omittable]
    """Which events are sent; null for all."""


class Webhook(Resource):
    """Where events are sent."""

    id: int
    url: str
    kinds: list[EventKind] | None
    created_at: Time
    secret: str | None = None
    """What signs them, `whsec_…` as Standard Webhooks write it; shown once, to who adds it."""


class WebhookPage(Page):
    """A page of webhooks."""

    webhooks: list[Webhook]


@operation("GET", "/webhooks", bearer="platform")
def list_webhooks(token: ApiToken, query: PageQuery) -> WebhookPage:
    """List the account's webhooks, newest first."""
    rows = rows_of_account(token, Endpoint).where(Endpoint.is_active())
    return page_of(WebhookPage, rows.order_by(Endpoint.id.desc()), query, _shown)


@operation("POST", "/webhooks", bearer="platform", shown_once="secret", status=201)
def add_webhook(token: ApiToken, body: NewWebhook) -> Webhook:
    """Add a webhook: from now on, what happens in the account is posted there, signed."""
    return _shown(*token.add_webhook(body.url, body.kinds))


@operation("DELETE", "/webhooks/<int:webhook_id>", bearer="platform", status=204)
def remove_webhook(token: ApiToken, webhook_id: int) -> None:
    """Remove a webhook and what waits for it, immediately and permanently."""
    token.remove_webhook(account_row_or_404(token, Endpoint, webhook_id, "webhook"))


def _shown(endpoint: Endpoint, secret: str | None = None) -> Webhook:
    return Webhook.of(endpoint, secret=secret)
