"""Passkeys: what browsers are asked for, and whether their answers are right."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import webauthn
from webauthn.helpers import base64url_to_bytes, parse_authentication_credential_json, structs
from webauthn.helpers.exceptions import WebAuthnException

from refine import settings
from refine.errors import InvalidValue

T = TypeVar("T")

_USUAL_PORTS = {"http": ":80", "https": ":443"}
_VERIFIED = structs.UserVerificationRequirement.REQUIRED
# Kept where it was made, so that it can also sign in by itself.
_SELECTED = structs.AuthenticatorSelectionCriteria(
    resident_key=structs.ResidentKeyRequirement.REQUIRED, user_verification=_VERIFIED
)


def host_and_origin() -> tuple[str, str]:
    """Return what passkeys are bound to: by the setting alone, whatever a request says."""
    url = urlsplit(settings.current().public_url)
    return url.hostname or "", f"{url.scheme}://{url.netloc.removesuffix(_USUAL_PORTS[url.scheme])}"


def options_to_create(email: str, handle: str, challenge: bytes, ids: Iterable[str]) -> str:
    """Return, as JSON, what a browser needs to make a passkey beside those with these ids."""
    options = webauthn.generate_registration_options(
        rp_id=host_and_origin()[0],
        rp_name="Refine",
        user_name=email,
        user_id=bytes.fromhex(handle),
        challenge=challenge,
        exclude_credentials=_named(ids),
        authenticator_selection=_SELECTED,
    )
    return webauthn.options_to_json(options)


def options_to_use(challenge: bytes, ids: Iterable[str]) -> str:
    """Return, as JSON, what a browser needs to use one of these; without ids, any that it has."""
    options = webauthn.generate_authentication_options(
        rp_id=host_and_origin()[0],
        challenge=challenge,
        allow_credentials=_named(ids),
        user_verification=_VERIFIED,
    )
    return webauthn.options_to_json(options)


def _named(ids: Iterable[str]) -> list[structs.PublicKeyCredentialDescriptor]:
    return [structs.PublicKeyCredentialDescriptor(id=base64url_to_bytes(each)) for each in ids]


def id_in(answer: str) -> bytes:
    """Return the id of the passkey that an answer names, not verified yet; InvalidValue."""
    return _read(lambda: parse_authentication_credential_json(answer).raw_id)


def verified(verify: Callable[..., T], answer: str, challenge: bytes, **key: Any) -> T:
    """Return what one of the library's two ways to verify makes of an answer; InvalidValue."""
    host, origin = host_and_origin()
    return _read(
        lambda: verify(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=host,
            expected_origin=origin,
            require_user_verification=True,
            **key,
        )
    )


def _read(read: Callable[[], T]) -> T:
    try:
        return read()
    except (WebAuthnException, ValueError):
        raise InvalidValue("the passkey was not accepted; try again") from None
