"""A server of raw bytes, for answers that no HTTP library would send."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket, threading.Event], None]
"""What to do with a connection, until the event is set."""

DRIP_S = 0.01


@contextmanager
def answering(script: Script) -> Iterator[str]:
    """Serve a script on 127.0.0.1 to each connection, and yield the address."""
    over, threads = threading.Event(), list[threading.Thread]()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(30.0)
            script(connection, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=[connection], daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join()


def drip(start: bytes, piece: bytes, every_s: float = DRIP_S) -> Script:
    """Read a request, send `start`, then send `piece` at intervals for ever."""

    def script(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(start)
        while not over.wait(every_s):
            connection.sendall(piece)

    return script


def take_slowly(connection: socket.socket, over: threading.Event) -> None:
    """Read a byte of the request at a time."""
    while not over.wait(DRIP_S):
        connection.recv(1)
