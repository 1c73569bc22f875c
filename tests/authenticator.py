"""An authenticator without a screen: it makes and uses passkeys, as browsers or forgers would."""

import json
from hashlib import sha256
from secrets import token_bytes
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import bytes_to_base64url

ORIGIN = "http://localhost:8000"
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


class Authenticator:
    def __init__(self, origin: str = ORIGIN) -> None:
        self.origin = origin
        self.flags = PRESENT | VERIFIED
        self.count = 0
        self.id = token_bytes(16)
        self._key = ec.generate_private_key(ec.SECP256R1())

    def create(self, options: dict[str, Any]) -> str:
        """What a browser answers when it is asked for a new passkey."""
        point = self._key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (point.x, point.y))
        public = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        about = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + public
        data = self._data(options["rp"]["id"], self.flags | ATTESTED) + about
        attested = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("create", options["challenge"])
        return self._answer(clientDataJSON=client, attestationObject=attested)

    def use(self, options: dict[str, Any]) -> str:
        """What a browser answers when it is asked for a passkey."""
        data = self._data(options["rpId"], self.flags)
        client = self._client("get", options["challenge"])
        signed = self._key.sign(data + sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._answer(clientDataJSON=client, authenticatorData=data, signature=signed)

    def _data(self, host: str, flags: int) -> bytes:
        self.count += 1
        return sha256(host.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client(self, verb: str, challenge: str) -> bytes:
        about = {"type": f"webauthn.{verb}", "challenge": challenge, "origin": self.origin}
        return json.dumps(about).encode()

    def _answer(self, **parts: bytes) -> str:
        id_ = bytes_to_base64url(self.id)
        response = {name: bytes_to_base64url(part) for name, part in parts.items()}
        return json.dumps({"id": id_, "rawId": id_, "type": "public-key", "response": response})
