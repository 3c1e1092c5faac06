"""Public documents. Each is built once for each version, and sent to clients that do not have that version."""

import asyncio
import hashlib
from collections.abc import Callable, Hashable
from inspect import isawaitable
from typing import Any
from weakref import WeakValueDictionary

from fastapi import Request, Response
from pydantic_core import to_json

from service.coordination.cache import Recent
from service.http.metering import in_thread

DOCUMENT_CACHE_BYTES = 16 << 20
"""How many documents are cached."""


class PublishedCache:
    """A cache of recently requested documents, by path."""

    def __init__(self) -> None:
        self._built = Recent[str, tuple[Hashable, bytes, str]](DOCUMENT_CACHE_BYTES)
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def get_document(self, path: str, version: Hashable, build: Callable[[], Any]) -> tuple[bytes, str]:
        """Return a document's bytes and entity tag. Callers that find a new version wait for the first one to build it."""
        async with self._locks.setdefault(path, asyncio.Lock()):
            found = self._built.get_value(path)
            if found is None or found[0] != version:
                content = build()
                content = await content if isawaitable(content) else content
                body = content if isinstance(content, bytes) else await in_thread(_to_json, content)
                found = version, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
                self._built.put_value(path, found, len(body) + len(path))
            return found[1:]


def _to_json(content: Any) -> bytes:
    return to_json(content, inf_nan_mode="null")


async def shown_as(request: Request, path: str, version: Hashable, build: Callable[[], Any]) -> Response:
    """Answer with the public JSON document of another path."""
    cache: PublishedCache = request.app.state.published
    body, _ = await cache.get_document(path, version, build)
    return Response(body, media_type="application/json")


async def answer_caller(content: Any) -> Response:
    """Answer with a JSON document that only this caller is shown."""
    body = await in_thread(_to_json, content)
    return Response(body, headers={"cache-control": "no-store"}, media_type="application/json")


async def answer_published(
    request: Request, version: Hashable, build: Callable[[], Any], kind: str = "application/json"
) -> Response:
    """Answer with a public document, or 304.

    Args:
        request: its path names the document.
        version: changes with everything that the document shows; 0 for a document that never changes.
        build: makes bytes, or what pydantic encodes as JSON; may be a coroutine.
        kind: the media type.
    """
    cache: PublishedCache = request.app.state.published
    body, tag = await cache.get_document(request.url.path, version, build)
    headers = {"etag": tag, "cache-control": "no-cache"}
    known = request.headers.get("if-none-match", "").split(",")
    if tag in {each.strip().removeprefix("W/") for each in known}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=kind)
