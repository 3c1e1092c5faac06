import socket
import threading

import pytest

from veilsum.demo import coordinator
from veilsum.demo.coordinator import surroundings


def test_children_get_none_of_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILSUM_OPERATOR_TOKEN", "ours")
    monkeypatch.setenv("VEILSUM_URL", "https://elsewhere")
    monkeypatch.setenv("NO_PROXY", "intranet")
    given = surroundings(VEILSUM_DATA_DIR="/data")
    assert {name for name in given if name.startswith("VEILSUM_")} == {"VEILSUM_DATA_DIR"}
    assert given["OMP_NUM_THREADS"] == "1"
    assert given["NO_PROXY"] == given["no_proxy"] == "intranet,127.0.0.1"


def test_something_else_on_the_port_is_no_coordinator() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-nothing\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert not coordinator._healthy(server.getsockname()[1])
        thread.join()
