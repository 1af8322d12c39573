"""Strict servers of the Messages API on cloud platforms, with the steps of `loopback`."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

from .loopback import Body, Fail, Server, Step

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIATEST", "secret-of-test", "session-of-test"
_SIGNED = re.compile(
    rf"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/(\d+/[\w-]+/bedrock-mantle/aws4_request), "
    r"SignedHeaders=([\w;-]+), Signature=(\w+)"
)


class BedrockServer(Server):
    """Server that accepts requests signed with the keys above, or with the key `bearer`."""

    bearer = "bedrock-key"

    def refusal(self, path: str, headers: Mapping[str, str]) -> Fail | None:
        if headers.get("authorization") == f"Bearer {self.bearer}":
            return super().refusal(path, headers)
        if not _SIGNED.fullmatch(headers.get("authorization", "")):
            return Fail(403, "", body='{"message": "The security token is invalid."}')
        return super().refusal(path, headers)

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        signed = _SIGNED.fullmatch(headers["authorization"])
        if signed and signature("/v1/messages", headers, raw, *signed.group(1, 2)) != signed[3]:
            self.rejected.append(("the signature is of another request", body))
            return Fail(403, "", body='{"message": "The signature does not match."}'), "", {}
        return super().answer(body, headers, raw)


def signature(path: str, headers: Mapping[str, str], raw: bytes, scope: str, names: str) -> str:
    """Return the AWS Signature Version 4 of a request."""
    given = "".join(f"{name}:{headers[name].strip()}\n" for name in names.split(";"))
    canonical = f"POST\n{path}\n\n{given}\n{names}\n{hashlib.sha256(raw).hexdigest()}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    words = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    return _key_for(scope, words).hex()


def _key_for(scope: str, words: str) -> bytes:
    def sign(key: bytes, part: str) -> bytes:
        return hmac.digest(key, part.encode(), "sha256")

    return reduce(sign, [*scope.split("/"), words], f"AWS4{SECRET_KEY}".encode())


class VertexServer(Server):
    """Server that accepts requests for models of one project with the token `token`."""

    token = "token-of-test"

    def __init__(self, steps: Any, **options: Any) -> None:
        super().__init__(steps, **options)
        self.bodies: list[Body] = []

    def refusal(self, path: str, headers: Mapping[str, str]) -> Fail | None:
        place = "/projects/project-1/locations/global/publishers/anthropic/models/"
        self._model, _, verb = path.removeprefix(place).rpartition(":")
        if not path.startswith(place) or verb != "streamRawPredict":
            return Fail(404, f"no such path: {path}")
        if headers.get("authorization") != f"Bearer {self.token}":
            words = '{"error": {"code": 401, "message": "no token", "status": "UNAUTHENTICATED"}}'
            return Fail(401, "", body=f"[{words}]")
        return None

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.bodies.append(dict(body))
        if "model" in body or not body.pop("anthropic_version", ""):
            self.rejected.append(("the body is one of the public API", body))
            return Fail(400, "model: Extra inputs are not permitted"), "", {}
        body["model"] = self._model
        return super().answer(body, headers, raw)
