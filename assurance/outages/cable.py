"""A port that forwards to a database or a coordinator, and can be disconnected or silenced."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Cable:
    """Forward connections on `port` to a server.

    Args:
        url: the server's address.

    Attributes:
        url: the server's address through the cable.
        pulled: whether new connections are refused.
        silent: while set, nothing is forwarded, without an error.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 5432
        self._parts, self.url = parts, ""
        self._writers: set[asyncio.StreamWriter] = set()
        self.pulled = False
        self._speaks = asyncio.Event()
        self._speaks.set()

    @property
    def silent(self) -> bool:
        return not self._speaks.is_set()

    @silent.setter
    def silent(self, silent: bool) -> None:
        (self._speaks.clear if silent else self._speaks.set)()

    @asynccontextmanager
    async def laid(self) -> AsyncIterator["Cable"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        near = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        user = f"{self._parts.username}@" if self._parts.username else ""
        self.url = self._parts._replace(netloc=user + near).geturl()
        yield self
        server.close()
        self.cut()

    def cut(self) -> None:
        """Abort every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.pulled:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:  # the server is not there
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._writers |= ends
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._flow(reader, far_writer), self._flow(far_reader, writer))
        for end in ends:  # one end has failed: the other must not wait for it
            end.transport.abort()
        self._writers -= ends

    async def _flow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._speaks.wait()  # TCP resends what the silence held up
            writer.write(data)
            await writer.drain()
        writer.close()
