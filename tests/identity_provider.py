"""Two providers of identities: a real one, and one that signs whatever a test wants."""

import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from authlib.deprecate import AuthlibDeprecationWarning
from flask import Flask, jsonify, redirect, request
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from werkzeug.serving import make_server

CLIENT_ID = "refine"


class Provider:
    """oidc-provider-mock, where ``know`` makes people and ``answer`` signs them in."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://localhost:{port}"

    def know(self, subject: str, **claims: Any) -> None:
        usual = {"email": f"{subject}@example.org", "email_verified": True}
        done = requests.put(f"{self.issuer}/users/{subject}", json={**usual, **claims}, timeout=9)
        done.raise_for_status()

    def answer(self, url: str, subject: str) -> str:
        """Sign somebody in at this URL, and return the path where the browser goes then."""
        done = requests.post(url, data={"sub": subject}, allow_redirects=False, timeout=9)
        return path_of(done.headers["Location"])


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


@contextmanager
def real_provider() -> Iterator[Provider]:
    with warnings.catch_warnings():
        # the provider still uses a module that Authlib is about to drop
        warnings.simplefilter("ignore", AuthlibDeprecationWarning)
        from oidc_provider_mock import run_server_in_thread  # noqa: PLC0415

    with run_server_in_thread() as server:
        yield Provider(server.server_port)


class Forger:
    """A provider whose tokens a test spells out: ``header``, ``key`` and ``claims``."""

    def __init__(self) -> None:
        self.keys = {"one": RSAKey.generate_key(2048, {"kid": "one"})}
        self.key: Any = self.keys["one"]
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.claims: dict[str, Any] = {}
        self.moved: str | None = None
        self.asked: list[str] = []
        self.posted: dict[str, str] = {}
        self.pause_seconds = 0.0
        self.issuer = ""

    def answer(self, url: str) -> str:
        """Note what was asked for, and return the path where the browser goes then."""
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        return f"/sign-in/provider/callback?code=a-code&state={self.query['state']}"

    def token(self) -> str:
        now = int(time.time())
        usual = {
            "iss": self.issuer,
            "sub": "ada",
            "aud": CLIENT_ID,
            "nonce": self.query["nonce"],
            "iat": now,
            "exp": now + 60,
            "auth_time": now,
            "email": "ada@example.org",
            "email_verified": True,
            "roles": ["refine:admin@own"],
        }
        claims = {k: v for k, v in {**usual, **self.claims}.items() if v is not None}
        return jwt.encode(self.header, claims, self.key, algorithms=[self.header["alg"]])

    def app(self) -> Flask:
        app = Flask("forger")

        @app.before_request
        def note() -> Any:
            self.asked.append(request.path)
            time.sleep(self.pause_seconds)
            return redirect(f"{self.moved}{request.path}") if self.moved else None

        @app.get("/.well-known/openid-configuration")
        def discover() -> Any:
            ends = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
            ends["jwks_uri"] = "keys"
            urls = {name: f"{self.issuer}/{path}" for name, path in ends.items()}
            return jsonify({"issuer": self.issuer, **urls})

        @app.get("/keys")
        def keys() -> Any:
            return jsonify({"keys": [key.as_dict(private=False) for key in self.keys.values()]})

        @app.post("/token")
        def token() -> Any:
            self.posted = request.form.to_dict()
            return jsonify({"access_token": "x", "token_type": "Bearer", "id_token": self.token()})

        return app

    @contextmanager
    def serving(self) -> Iterator["Forger"]:
        server = make_server("localhost", 0, self.app(), threaded=True)
        self.issuer = f"http://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def shared_secret(text: str) -> OctKey:
    return OctKey.import_key(text)


def other_keys() -> Mapping[str, Any]:
    """Keys by algorithm, that no provider publishes."""
    return {"RS256": RSAKey.generate_key(2048), "ES256": ECKey.generate_key("P-256")}
