"""The security headers of every response."""

from flask import Flask, Response

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Refine uses none of these, so they are denied, even if another site opens the page.
_PERMISSIONS_POLICY = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()"

_ALWAYS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": _PERMISSIONS_POLICY,
}


def register(app: Flask) -> None:
    """Set the headers on every response of ``app``, unless a view has chosen its caching."""
    is_secure = app.config["SESSION_COOKIE_SECURE"]

    @app.after_request
    def _set_headers(response: Response) -> Response:
        response.headers.update(_ALWAYS)
        response.headers.setdefault("Cache-Control", "no-store")
        if is_secure:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"
        return response
