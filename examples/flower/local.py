"""Both apps in one process, a thread for each node: Flower's own code without its daemons.

.venv/bin/python local.py settings.json    # url, federation, study, approve, nodes: [{identity, data}], test, output
"""

import json
import logging
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from apps import client, server
from flwr.app import Context, Message, RecordDict
from flwr.app.error import Error
from flwr.common import Code
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class Threads(Grid):  # type: ignore[misc] # Flower is untyped here
    """Carries messages to client apps in threads of this process."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._contexts = {
            number: Context(1, number, node, RecordDict(), {}) for number, node in enumerate(nodes, 1)
        }

    def set_run(self, run: Any) -> None:
        pass

    @property
    def run(self) -> Any:
        raise NotImplementedError("no SuperLink, no run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, *_: Any, **__: Any
    ) -> Message:
        return Message(content, dst_node_id=dst_node_id, message_type=message_type)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError("the apps send and receive at once")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError("the apps send and receive at once")

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ARG002 - Flower's signature
    ) -> Iterable[Message]:
        asked = list(messages)
        with ThreadPoolExecutor(len(self._contexts)) as pool:
            return list(pool.map(self._answer, asked))

    def _answer(self, message: Message) -> Message:
        try:
            return client(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:  # noqa: BLE001 - a node's failure is an answer, as over a SuperLink
            return Message(Error(Code.UNKNOWN, f"{type(error).__name__}: {error}"), reply_to=message)


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    logging.getLogger("flwr").setLevel(logging.WARNING)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # no message is made without one
    own = {"url": settings["url"], "admin-key": settings["federation"], "approve": settings.pop("approve")}
    nodes = [own | node for node in settings.pop("nodes")]
    context = Context(1, 0, {}, RecordDict(), {"rounds": 8} | settings)
    server(Threads(nodes), context)
    print(json.dumps(dict(context.state["outcome"])))


if __name__ == "__main__":
    main()
