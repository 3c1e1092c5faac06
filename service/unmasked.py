"""What masking costs is measured against this: members' statistics in the clear, stored, added up and solved by the same coordinator.

For benchmarks alone, and only where `VEILSUM_UNMASKED_BENCHMARK` says so. Whoever runs the coordinator can read all that is sent here, so
nothing that describes a person may ever be. Authentication, storage and the audit log are those of rounds; what a round has beside them is
what is being measured. It belongs to one process, and does not survive it.
"""

import asyncio
import time
from typing import Annotated, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from calibration import CalibrationError, FFCStatistics, solve_ffc
from calibration.layout import DenseBlock, Layout, SymmetricBlock
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.rest import Model, Problem, View
from service.asked import WEIGHTS, document
from service.problems import problem_of, wrong_phase
from service.storage.blobs import Blobs
from service.watch import Watch

State = Literal["collecting", "solving", "done", "failed"]
ELEMENT = np.dtype("<f4")


class UnmaskedRequest(Model):
    """What members are to send.

    Attributes:
        dim: l, features.
        classes: C.
        members: how many send it.
        chunk_elements: of a chunk; the last one is shorter.
        whole: whether V comes as (l, l), or as its upper triangle, row by row, which is what rounds have of it.
    """

    dim: Annotated[int, Field(ge=1, le=4096)]
    classes: Annotated[int, Field(ge=1, le=4096)]
    members: Annotated[int, Field(ge=1, le=1000)]
    chunk_elements: Annotated[int, Field(ge=8, le=1 << 22)] = 1 << 17
    whole: bool = False

    @property
    def layout(self) -> Layout:
        """V, U (l, C) and the counts (C,), one after the other."""
        V = DenseBlock("V", (self.dim, self.dim)) if self.whole else SymmetricBlock("V", self.dim)
        return Layout((V, DenseBlock("U", (self.dim, self.classes)), DenseBlock("n", (self.classes,))))

    @property
    def elements(self) -> int:
        """Of all three."""
        return self.layout.elements

    @property
    def chunks(self) -> int:
        """Of one member."""
        return -(-self.elements // self.chunk_elements)


class UnmaskedView(View):
    """How far it has come.

    Attributes:
        state: "collecting", "solving", then "done" or "failed".
        version: grows with the state.
        seconds: what each state took that is over, "solving" being the sum and the solution.
        fault: why it failed.
    """

    state: State
    version: int
    seconds: dict[State, float]
    fault: Problem | None = None


class Unmasked:
    """One sum in the clear.

    Args:
        federation: whose members send.
        request: what.
        blobs: where it is kept until it is solved.
    """

    def __init__(self, federation: str, request: UnmaskedRequest, blobs: Blobs) -> None:
        self._folder, self._request, self._blobs = folder_of(federation), request, blobs
        self._stored: dict[str, set[int]] = {}
        self._times_s = [time.monotonic()]
        self._fault: Problem | None = None
        self.watch = Watch(lambda: len(self._times_s))

    async def store(self, member: str, index: int, data: bytes) -> None:
        """Keep a chunk durably; the last one of all has them added up and solved.

        Raises:
            PeerFault: chunk-unknown for an index that there is not; chunk-mismatch for another length than the request's, or what is no
                number; wrong-phase for a member more than were asked, or once all are there; sum-check-failed, where the sum has no
                solution.
        """
        request = self._request
        if index >= request.chunks:
            raise PeerFault(Cause.CHUNK_UNKNOWN, f"chunks are 0 to {request.chunks - 1}", [member])
        size = min(request.chunk_elements, request.elements - index * request.chunk_elements)
        if len(data) != size * ELEMENT.itemsize:
            detail = f"chunk {index} has {len(data)} bytes of {size * ELEMENT.itemsize}"
            raise PeerFault(Cause.CHUNK_MISMATCH, detail, [member])
        if not np.isfinite(np.frombuffer(data, ELEMENT)).all():
            raise PeerFault(Cause.CHUNK_MISMATCH, f"chunk {index} holds what is no finite number", [member])
        if len(self._times_s) > 1 or len({*self._stored, member}) > request.members:
            raise wrong_phase(f"all {request.members} members have sent theirs: begin another")
        await asyncio.to_thread(self._blobs.put, f"{self._folder}/{member}/{index}", data)
        self._stored.setdefault(member, set()).add(index)
        whole = sum(map(len, self._stored.values())) == request.members * request.chunks
        if whole and len(self._times_s) == 1:  # not where the last chunk came twice
            self._moved()
            try:
                await asyncio.to_thread(self._solve)
            except BaseException as error:
                self._fault = problem_of(_fault_of(error))
                raise
            finally:
                self._moved()

    def _moved(self) -> None:
        self._times_s.append(time.monotonic())
        self.watch.notify()

    def _solve(self) -> None:
        request = self._request
        total = np.zeros(request.elements)
        for member in self._stored:
            for index in range(request.chunks):
                start = index * request.chunk_elements
                words = np.frombuffer(self._blobs.get(f"{self._folder}/{member}/{index}"), ELEMENT)
                total[start : start + len(words)] += words
        try:
            solution = solve_ffc(statistics_of(total, request))
        except CalibrationError as error:
            raise PeerFault(Cause.SUM_CHECK_FAILED, f"{type(error).__name__}: {error}") from error
        self._blobs.put(f"{self._folder}/{WEIGHTS}", document({WEIGHTS: solution.weights}, {}))

    def weights(self) -> bytes:
        """The head, as safetensors; PeerFault(wrong-phase) before it is solved."""
        if (state := self.view().state) != "done":
            raise wrong_phase(f"the sum is {state}" + (f": {self._fault.detail}" if self._fault else ""))
        return self._blobs.get(f"{self._folder}/{WEIGHTS}")

    def view(self) -> UnmaskedView:
        """How far it has come."""
        states: tuple[State, ...] = get_args(State)
        spans = zip(states, self._times_s, self._times_s[1:], strict=False)
        seconds = {state: round(until - since, 6) for state, since, until in spans}
        state = "failed" if self._fault else states[len(seconds)]
        return UnmaskedView(state=state, version=len(self._times_s), seconds=seconds, fault=self._fault)


def _fault_of(error: BaseException) -> PeerFault:
    """Why a sum was not solved, for whoever waits for it."""
    if isinstance(error, PeerFault):
        return error
    return PeerFault(Cause.UNAVAILABLE, f"{type(error).__name__} while it was solved: begin another")


def folder_of(federation: str) -> str:
    """Where a federation's blobs lie."""
    return f"unmasked/{federation}"


def statistics_of(total: npt.NDArray[np.float64], request: UnmaskedRequest) -> FFCStatistics:
    """V, U and the counts, in one array after the other."""
    blocks = request.layout.unflatten(total)
    counts = np.rint(blocks["n"]).astype(np.int64)
    return FFCStatistics.from_blocks(blocks["V"], blocks["U"], counts, bias=False)


Sums = dict[str, Unmasked]
"""By federation."""
