"""`veilsum serve` with additional routes for statistics in the clear, with which `http_round.py` compares a round.

Authentication, durable storage and audit log are those of rounds. Never send it real data: the operator can read all of it.

    .venv/bin/python -m benchmarks.plain_sums serve --port 8000
"""

import asyncio
import threading
import time
from unittest.mock import patch

import numpy as np
from fastapi import FastAPI, Response

from service.access.guards import EVERYONE_GUARD, MEMBER_GUARD, ROUNDS_GUARD
from service.app import create_app
from service.routes.common import Here, Hex32Path, IndexPath, MemberPath, Octets, Routes
from service.settings import Settings
from service.storage.blobs import Blobs
from veilsum import cli
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.calibration.answer import Document
from veilsum.calibration.layout import DenseBlock, Layout, SymmetricBlock
from veilsum.cli import serving
from veilsum.protocol import rest
from veilsum.protocol.messages.outcome import MAX_CHUNK_BYTES
from veilsum.protocol.rest import Model
from veilsum.protocol.round_spec import CHUNK_ELEMENTS
from veilsum.study.result_files import document_file

ELEMENT = np.dtype("<f4")
SUM = f"{rest.FEDERATION_PATH}/plain"
CHUNK = f"{SUM}/uploads/{{member}}/chunks/{{index}}"
RESULT = f"{SUM}/weights"
WEIGHTS = "weights"


class PlainRequest(Model):
    """The size of the members' statistics.

    Attributes:
        dim: l, the number of features.
        classes: C.
        members: how many members send.
        whole: send V as (l, l) instead of the upper triangle that a round sends.
    """

    dim: int
    classes: int
    members: int
    whole: bool

    @property
    def layout(self) -> Layout:
        """V, U (l, C) and the counts (C,), concatenated."""
        V = DenseBlock("V", (self.dim, self.dim)) if self.whole else SymmetricBlock("V", self.dim)
        return Layout((V, DenseBlock("U", (self.dim, self.classes)), DenseBlock("n", (self.classes,))))

    @property
    def chunks(self) -> int:
        """Number of chunks from each member."""
        return -(-self.layout.elements // CHUNK_ELEMENTS)


class PlainSum:
    """One sum in the clear, which is solved when the last chunk is stored.

    Attributes:
        seconds: duration of the members' sending, and of the sum and its solution.
        solved: set at the end.
    """

    def __init__(self, request: PlainRequest, folder: str, blobs: Blobs) -> None:
        self.seconds: dict[str, float] = {}
        self.solved = asyncio.Event()
        self._request, self._folder, self._blobs = request, folder, blobs
        self._stored, self._total, self._adding = (
            set[tuple[str, int]](),
            np.zeros(request.layout.elements),
            threading.Lock(),
        )
        self._begun_s = time.monotonic()

    async def store(self, member: str, index: int, data: bytes) -> None:
        """Store a chunk durably, and add it."""
        await asyncio.to_thread(self._take, member, index, data)
        complete = len(self._stored) == self._request.members * self._request.chunks
        if complete and not self.seconds:
            collected_s = time.monotonic()
            self.seconds["collecting"] = collected_s - self._begun_s
            await asyncio.to_thread(self._solve)
            self.seconds["solving"] = time.monotonic() - collected_s
            self.solved.set()

    async def weights(self) -> bytes:
        """Wait for the head's file."""
        await self.solved.wait()
        return await asyncio.to_thread(self._blobs.get, f"{self._folder}/{WEIGHTS}")

    def _take(self, member: str, index: int, data: bytes) -> None:
        self._blobs.put(f"{self._folder}/{member}/{index}", data)
        words, start = np.frombuffer(data, ELEMENT), index * CHUNK_ELEMENTS
        with self._adding:
            if (member, index) not in self._stored:  # a chunk may be sent twice
                self._stored.add((member, index))
                self._total[start : start + len(words)] += words

    def _solve(self) -> None:
        blocks = self._request.layout.unflatten(self._total)
        counts = np.rint(blocks["n"]).astype(np.int64)
        solution = solve_ffc(FFCStatistics.from_blocks(blocks["V"], blocks["U"], counts, constant=False))
        self._blobs.put(f"{self._folder}/{WEIGHTS}", document_file(Document({WEIGHTS: solution.weights}, {})))


def plain_app(settings: Settings) -> FastAPI:
    """The coordinator's app with the routes for plain sums, one sum per federation."""
    serve, sums = Routes("plain sums"), dict[str, PlainSum]()

    @serve("POST", SUM, ROUNDS_GUARD, status_code=201)
    async def begin(federation: Hex32Path, request: PlainRequest, here: Here) -> None:
        """Begin a sum (operator)."""
        sums[federation] = PlainSum(request, f"plain/{federation}", here.blobs)

    @serve("PUT", CHUNK, MEMBER_GUARD, max_body_size=MAX_CHUNK_BYTES)
    async def put_chunk(federation: Hex32Path, member: MemberPath, index: IndexPath, body: Octets) -> None:
        """Send plain float32 numbers."""
        await sums[federation].store(member, index, body)

    @serve("GET", SUM, EVERYONE_GUARD)
    async def seconds(federation: Hex32Path) -> dict[str, float]:
        """Return the duration of each phase."""
        return sums[federation].seconds

    @serve("GET", RESULT, EVERYONE_GUARD)
    async def weights(federation: Hex32Path) -> Response:
        """Return the head, as soon as it is solved."""
        return Response(await sums[federation].weights(), media_type=rest.SAFETENSORS_TYPE)

    app = create_app(settings)
    app.router.routes.extend(serve.router.routes)
    return app


if __name__ == "__main__":
    with patch.object(serving, "create_app", plain_app):
        cli.main()
