"""The provider of identities, by OpenID Connect: where to sign in, and what its tokens say."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import structlog
from authlib.integrations.base_client import BaseApp, OAuth2Mixin, OpenIDMixin
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken

from refine.errors import InvalidValue
from refine.llm.exchange import Wire
from refine.settings import Settings

_log = structlog.get_logger(__name__)

# How long one exchange may take, and how long what was discovered is believed.
PATIENCE_SECONDS = 10.0
_BELIEVED_SECONDS = 600.0
LEEWAY_SECONDS = 30
# Signatures of private keys alone: a shared secret or none proves nothing.
ALGORITHMS = [f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)]


class _Session(OAuth2Session):  # type: ignore[misc]
    def request(self, method: str, url: str, **options: Any) -> Any:
        wire = Wire()
        wire.guard(self)
        bounds = {"timeout": PATIENCE_SECONDS, "allow_redirects": False}
        with wire.lasting(PATIENCE_SECONDS):
            return super().request(method, url, **{**options, **bounds})


class IdentityProvider(OAuth2Mixin, OpenIDMixin, BaseApp):  # type: ignore[misc]
    client_cls = _Session
    server_metadata: dict[str, Any]

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            None,
            client_id=settings.oidc_client_id,
            client_secret=settings.oidc_client_secret,
            client_kwargs={"scope": settings.oidc_scope, "code_challenge_method": "S256"},
            server_metadata_url=f"{settings.oidc_issuer}/.well-known/openid-configuration",
        )
        self._issuer = settings.oidc_issuer

    def begin(self, redirect_uri: str, **wanted: Any) -> dict[str, str]:
        """Return the URL that asks somebody to sign in, and what to hold the answer against."""
        with _understood():
            return dict(self.create_authorization_url(redirect_uri, **wanted))

    def claims(self, code: str, redirect_uri: str, verifier: str, nonce: str) -> Mapping[str, Any]:
        """Return what the token says that the code is good for; InvalidValue."""
        with _understood():
            token = self.fetch_access_token(redirect_uri, code=code, code_verifier=verifier)
            named = {"iss": self.load_server_metadata()["issuer"], "aud": self.client_id}
            wanted = {name: {"essential": True, "value": value} for name, value in named.items()}
            return dict(self.parse_id_token(token, nonce, wanted, CodeIDToken, LEEWAY_SECONDS))

    def load_server_metadata(self) -> Any:
        if self.server_metadata.get("_loaded_at", 0) < time.time() - _BELIEVED_SECONDS:
            self.server_metadata = {}
        found = super().load_server_metadata()
        if found["issuer"].rstrip("/") != self._issuer:
            raise ValueError("REFINE_OIDC_ISSUER is not what the provider calls itself")
        found["id_token_signing_alg_values_supported"] = ALGORITHMS
        return found


@cache
def provider_of(settings: Settings) -> IdentityProvider:
    return IdentityProvider(settings)


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except Exception as fault:  # of libraries, whatever the provider sent
        _log.warning("the identity provider was not understood", fault=type(fault).__name__)
        raise InvalidValue("the sign-in at your provider could not be checked; try again") from None
