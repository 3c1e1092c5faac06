"""A uvicorn server that asks a pool about each connection as it accepts it, before its TLS handshake."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import uvicorn

from service.access.pool import Place, Pool
from service.telemetry.logs import describe_error, log

HANDSHAKE_TIMEOUT_S = 10.0
"""How long a client may take for its TLS handshake."""
ACCEPTED_AT_ONCE = 64
"""Most connections that are accepted before others are served."""
NO_DESCRIPTOR_PAUSE_S = 0.5
"""How long nothing is accepted once this process has no descriptor left."""


class PooledServer(uvicorn.Server):
    """A uvicorn server whose connections are of a pool. `config.http` takes `place`."""

    def __init__(self, config: uvicorn.Config, pool: Pool) -> None:
        super().__init__(config)
        self.pool = pool

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # it would accept without asking
        if self.started:
            made: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
            protocol = partial(
                made, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            acceptors = [Acceptor(each, self.pool, protocol, self.config.ssl) for each in sockets or ()]
            self.servers = acceptors  # type: ignore[assignment]  # it closes them, and waits for that


class Acceptor:
    """Accepts a listener's connections while the pool has room for them."""

    def __init__(
        self,
        listener: socket.socket,
        pool: Pool,
        protocol: Callable[..., asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.sockets = (listener,)
        self._listener, self._pool, self._protocol, self._tls = listener, pool, protocol, tls
        self._loop, self._connecting = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        self._closed = False
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more."""
        self._closed = True
        self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """End the handshakes that are under way."""
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept_waiting)

    def _accept_waiting(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection accepted", **describe_error(error))
                self._loop.remove_reader(self._listener)
                self._loop.call_later(NO_DESCRIPTOR_PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            place = self._pool.take(str(address[0]), partial(_shut_down, connection))
            if place is None:
                connection.close()
                continue
            task = self._loop.create_task(self._connect(connection, place))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket, place: Place) -> None:
        """Hand a connection to its protocol, after the TLS handshake."""
        try:
            await self._loop.connect_accepted_socket(
                partial(self._protocol, place=place),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if self._tls else None,
            )
        except BaseException as error:
            place.release()
            connection.close()
            if not isinstance(error, OSError):
                raise


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
