"""Exit 0 while the coordinator in this container answers on its port, with TLS or without.

A coordinator with TLS closes the connection on a plain request; one that hangs doesn't.
"""

import socket
import sys
from contextlib import suppress

port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
with socket.create_connection(("127.0.0.1", port), timeout=4) as connection:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = b""
    with suppress(ConnectionResetError):
        answer = connection.recv(64)
sys.exit(bool(answer) and answer.startswith(b"HTTP/") and b" 200 " not in answer)
