"""Valid and invalid requests that Schemathesis generates from the API document, against the whole app: `python -m assurance.apifuzz.run`.

Every operation is called as an operator, and as the member that the path names, on existing objects: an open round, a finished round, a
federation, a cohort that is formed and one that pairs, a member and a token. No answer may be a 5xx. Each answer must be declared and match its schema, and refusals must
be problem details.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from assurance.reports import arguments, report
from service.telemetry import logs
from tests.support.party import Party
from tests.support.serving import Server, running
from veilsum.protocol import rest
from veilsum.protocol.member import Paired

CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
AnyCase: TypeAlias = Case[Any]
AnyOperation: TypeAlias = APIOperation[Any, Any, Any, Any]
SLOW = {"windows": {"enrol": 3600, "upload": 3600, "answer": 3600}}
"""A question whose windows outlast the campaign."""
KNOWN = 4
"""How many of five cases are about existing objects."""


@dataclass
class Target:
    """A coordinator with existing objects to send requests about.

    Attributes:
        known: values of path parameters that exist.
        asked: values of query parameters that mean something.
        bodies: a message that is accepted, by path.
        statuses: number of answers by status.
        faults: the rules broken.
    """

    portal: BlockingPortal
    server: Server
    known: dict[str, list[str]]
    asked: dict[str, list[str]]
    bodies: dict[str, bytes]
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def send(self, case: AnyCase) -> None:
        """Send one case, and record what is wrong with its answer."""
        asked = case.as_transport_kwargs("http://coordinator")
        names = {"method", "url", "headers", "params", "json", "data"}
        request = {
            _renamed(name): value for name, value in asked.items() if name in names and value is not None
        }
        if cookies := asked.get("cookies"):  # httpx warns of cookies on a single request
            said = "; ".join(f"{name}={value}" for name, value in cookies.items())
            request["headers"] = {**(request.get("headers") or {}), "cookie": said}
        try:
            answer = self.portal.call(lambda: self.server.client.request(**request))
        except Exception as error:  # noqa: BLE001 - raised by the app, or an undeclared answer
            self._fault(case, _words(error))
            return
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            self._fault(case, f"{answer.status_code}: {answer.text}")
            return
        try:
            case.validate_response(answer, checks=CHECKS)
        except (AssertionError, BaseExceptionGroup) as error:
            self._fault(case, _words(error))

    def _fault(self, case: AnyCase, text: str) -> None:
        self.faults.append(f"{case.operation.label}: {text[:500]}\n{case.as_curl_command()[:500]}")


def _words(error: BaseException) -> str:
    """Describe an error without quoting the answer."""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    return "; ".join(f"{type(each).__name__}: {str(each)[:300]}" for each in inner)


def _renamed(name: str) -> str:
    return "content" if name == "data" else name


@contextmanager
def target(folder: Path) -> Iterator[Target]:
    """Set up four members, a finished round and a collecting one; nothing waits for long polls."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running(folder / "data", max_wait_s=0.0)) as server,
    ):
        party = Party(tuple(f"m-{index}" for index in range(4)), question=SLOW)
        portal.call(party.begin, server)
        done = portal.call(party.open_round, server)
        portal.call(party.play, server, done)
        live = portal.call(party.open_round, server)
        context, formed = portal.call(server.view, done)["context"], party.cohort
        portal.call(partial(party.open_cohort, server, period="pairing"))
        portal.call(party.enrol, server, party.ids)
        portal.call(party.pair, server, "m-0")
        paired = party.phases["m-0"]
        assert isinstance(paired, Paired)
        yield Target(
            portal,
            server,
            {
                "federation": [party.federation],
                "study": [party.study.hash.hex()],
                "cohort": [formed, party.cohort],
                "round_id": [done, live],
                "member": list(party.ids),
                "context": [context],
                "index": ["0", "1"],
                "name": ["weights"],
            },
            {"manifest": [paired.manifest.hash.hex()]},
            {rest.PAIRING_PATH: paired.pairing.to_bytes()},
        )


def fuzz(at: Target, operation: AnyOperation, mode: GenerationMode, examples: int, seed: int) -> int:
    """Send this many cases of an operation; return how many were sent."""
    sent = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(mode), data=st.data())
    def one(case: AnyCase, data: st.DataObject) -> None:
        nonlocal sent
        if data.draw(st.integers(0, KNOWN)):
            for name in ("Authorization", "Signature"):
                case.headers.pop(name, None)  # generated; the client sends valid ones
        for name, values in at.known.items():
            # The event stream of an open round has no end.
            there = values[:1] if operation.path == rest.ROUND_EVENTS_PATH else values
            if name in (case.path_parameters or {}) and data.draw(st.integers(0, KNOWN)):
                case.path_parameters[name] = data.draw(st.sampled_from(there))
        for name, values in at.asked.items():
            if name in (case.query or {}) and data.draw(st.integers(0, KNOWN)):
                case.query[name] = data.draw(st.sampled_from(values))
        if operation.method.upper() == "PUT" and operation.path in at.bodies and data.draw(st.integers(0, 1)):
            case.body = at.bodies[operation.path]
        at.send(case)
        sent += 1

    one()
    return sent


def campaign(folder: Path, examples: int, seed: int, only: str = "") -> dict[str, Any]:
    """Send this many valid and as many invalid cases of each operation."""
    begun, cases = time.monotonic(), Counter[str]()
    with target(folder) as at:
        schema = schemathesis.openapi.from_dict(at.server.app.openapi())
        for each in schema.get_all_operations():
            assert isinstance(each, Ok), each
            operation = each.ok()
            if only not in operation.label:
                continue
            for mode in MODES:
                try:
                    cases[mode.value] += fuzz(at, operation, mode, examples, seed)
                except hypothesis.errors.Unsatisfiable:
                    sys.stderr.write(f"{operation.label}: there is nothing {mode.value}\n")
        healthy = at.portal.call(at.server.client.get, rest.HEALTH_PATH).status_code == 200
        return {
            "cases": cases.total(),
            "cases_by_kind": dict(cases),
            "operations": len(list(schema.get_all_operations())),
            "answers_by_status": {str(status): n for status, n in sorted(at.statuses.items())},
            "answers_of_5xx": sum(n for status, n in at.statuses.items() if status >= 500),
            "alive_afterwards": healthy,
            "faults": at.faults,
            "seconds": round(time.monotonic() - begun, 1),
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--examples", type=int, default=110, help="of each operation and kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="operations whose label holds this")
    chosen = parser.parse_args()
    logs.configure_logs(quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(Path(folder), chosen.examples, chosen.seed, chosen.only)
    report(found, chosen.output, sound=not found["faults"] and found["alive_afterwards"])


if __name__ == "__main__":
    main()
