"""An OpenID Connect issuer on this machine, and its tokens."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from service.settings import OpenIDConnect

RSA, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())
SHARED = b"a secret that stands in the issuer's set by mistake"
SCOPES = {"operators": ["rounds", "sums"], "auditors": ["audit"]}


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def public(kid: str, key: Any) -> dict[str, Any]:
    """Return a public key as a JWK."""
    if isinstance(key, bytes):
        return {"kty": "oct", "k": encoded(key), "kid": kid, "alg": "HS256"}
    maker = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**maker.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}


class Provider:
    """An issuer on 127.0.0.1.

    Attributes:
        keys: its keys, by `kid`.
        asked: the paths that were requested.
        says: changes to its discovery document.
    """

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"rsa": RSA, "ec": EC, "oct": SHARED}
        self.asked: list[str] = []
        self.says: dict[str, Any] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                answer = json.dumps(provider.document(self.path)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/realm"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self.thread.start()

    def document(self, path: str) -> dict[str, Any]:
        if path == "/realm/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.says}
        return {"keys": [public(kid, key) for kid, key in self.keys.items()]}

    def stop(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()

    def trust(self, **changes: Any) -> OpenIDConnect:
        values = {"issuer": self.url, "audience": "veilsum", "scopes": SCOPES, **changes}
        return OpenIDConnect.model_validate(values)

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        values = {
            "iss": self.url,
            "aud": ["other", "veilsum"],
            "sub": "alice",
            "iat": now,
            "exp": now + 600,
            "groups": ["staff", "operators"],
            **changes,
        }
        return {name: value for name, value in values.items() if value is not None}

    def token(self, kid: str = "rsa", key: Any = None, algorithm: str = "", **changes: Any) -> str:
        """Make a token as the issuer does, with changes."""
        key = key or self.keys[kid]
        algorithm = algorithm or ("RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256")
        return jwt.encode(self.claims(**changes), key, algorithm, {"kid": kid})
