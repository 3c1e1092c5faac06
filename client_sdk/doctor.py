"""Check what a run needs of this member's machine and network before there is a run.

Nothing is answered, approved or spent, and no lock is taken. Checks go in order, and end at the first one that all later ones need.
"""

import platform
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from client_sdk.api import CoordinatorApi, model_of
from client_sdk.effects import Request, Response
from client_sdk.environment import THIS_MACHINE, Environment
from client_sdk.errors import ClientError, Misuse, PeerFault
from client_sdk.identity import Identity
from client_sdk.policy import Policy
from client_sdk.progress import Reporter
from client_sdk.records import Records
from client_sdk.retry import RetryingClient
from client_sdk.signing import Signer
from client_sdk.transport import BlockingDriver, name_proxy
from veilsum.calibration.errors import CalibrationError
from veilsum.protocol import rest
from veilsum.protocol.cost import in_bytes
from veilsum.protocol.messages import Roster
from veilsum.protocol.request_signature import SIGNATURE_LIFETIME_S
from veilsum.protocol.ring import Ring
from veilsum.protocol.round_spec import CHUNK_ELEMENTS
from veilsum.protocol.study import COUNT_BITS, DISCLOSED_STEPS, Content, Question
from veilsum.protocol.tags import PROTOCOL_VERSION
from veilsum.study import signed
from veilsum.study.canaries import fetched_pack
from veilsum.study.sites import DISK_FREE_BYTES_MIN, UPLOAD_SHARE_MAX
from veilsum.system.exposure import in_the_clear

PROBE_BYTES_MIN = 256 << 10
"""Fewest bytes by which an upload's rate is measured."""
_DISK_COPIES = 4
"""How often a member stores about as many bytes as a vector has: rows, vector, sums, result."""


@dataclass(frozen=True)
class HealthCheck:
    """One check's outcome.

    Attributes:
        name: what was checked.
        ok: whether a run can go on with it; None if it could not be checked, or was not approved, yet.
        detail: what was found, and what to do.
    """

    name: str
    ok: bool | None
    detail: str


class Doctor:
    """Checks one identity.

    Args:
        identity: this member's; its folder is not locked.
        policy: pins the admin's key.
        driver: the way to the coordinator.
        url: the coordinator's address.
        records: this member's, for its canaries; None to leave them out.
        environment: clock and randomness.
    """

    def __init__(
        self,
        identity: Identity,
        policy: Policy,
        driver: BlockingDriver,
        url: str,
        records: Records | None = None,
        environment: Environment = THIS_MACHINE,
    ) -> None:
        self._identity, self._policy, self._driver, self._url = identity, policy, driver, url
        self._records, self._environment = records, environment
        report, signer = Reporter(lambda _: None), Signer(identity.member, identity.key, environment)
        self._caller = RetryingClient(0.0, environment, report, signer)
        self._api = CoordinatorApi(self._caller)

    def run_checks(self) -> Iterator[HealthCheck]:
        """Yield each check's outcome."""
        yield HealthCheck("version", True, f"protocol {PROTOCOL_VERSION}, Python {platform.python_version()}")
        proxy = name_proxy(self._url)
        yield HealthCheck("proxy", True, "none" if proxy is None else f"requests go through {proxy}")
        sent_s = self._environment.now_s()
        try:
            answer = self._driver.run(self._caller.send_with_retries(Request("GET", rest.COORDINATOR_PATH)))
            view = model_of(rest.CoordinatorView, answer.body)
        except (ClientError, PeerFault) as error:
            yield HealthCheck("coordinator", ok=False, detail=str(error))
            return
        same = view.protocol_version == PROTOCOL_VERSION
        yield HealthCheck(
            "coordinator",
            same,
            "answers"
            if same
            else f"speaks protocol {view.protocol_version}: install the release of veilsum that the coordinator has",
        )
        yield self._check_encryption()
        yield from self._check_clock(answer, sent_s)
        federation = self._policy.federation.hex()
        try:
            roster = self._driver.run(self._api.fetch_roster(federation))
            self._policy.check_roster(roster)
        except (ClientError, PeerFault) as error:
            yield HealthCheck("roster", ok=False, detail=str(error))
            return
        own = self._identity.member, self._identity.public
        listed = any((entry.member, entry.key) == own for entry in roster.members)
        yield HealthCheck(
            "roster",
            listed,
            f"number {roster.number} lists {self._identity.member}"
            if listed
            else f"number {roster.number} does not list {self._identity.member} under this key: send the admin {self._identity.public.hex()}",
        )
        contents = self._fetch_studies(roster, federation)
        if not contents:
            yield HealthCheck(
                "studies",
                ok=None,
                detail="no study is in force yet: run this again once the admin has published one",
            )
        for content in contents:
            yield self._check_approval(content)
        yield self._check_disk(contents)
        if listed:
            yield from self._check_line(contents, federation)
            for content in contents:
                yield from self._check_canaries(content, federation)

    def _check_encryption(self) -> HealthCheck:
        if in_the_clear(self._url):
            return HealthCheck(
                "encryption", ok=False, detail="none: anyone on the network can change requests. Use https://"
            )
        tls = self._url.startswith("https")
        return HealthCheck(
            "encryption",
            ok=True,
            detail="TLS, with a trusted certificate" if tls else "none is needed on one machine",
        )

    def _check_clock(self, answer: Response, sent_s: float) -> Iterator[HealthCheck]:
        """Compare this machine's clock with the answer's date, which has whole seconds."""
        with suppress(ValueError, TypeError, OverflowError):
            shown_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
            ahead_s = (sent_s + self._environment.now_s()) / 2 - shown_s - 0.5
            how = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the coordinator's"
            ok = abs(ahead_s) < SIGNATURE_LIFETIME_S
            advice = (
                "" if ok else ": signed requests are refused (clock-skew). Set this machine's clock by NTP"
            )
            yield HealthCheck("clock", ok, how + advice)
            return
        yield HealthCheck("clock", ok=None, detail="the answer has no date")

    def _fetch_studies(self, roster: Roster, federation: str) -> list[Content]:
        """Return the newest version of each study that a member would accept."""
        newest = dict[str, Content]()
        for view in self._driver.run(self._api.fetch_studies(federation)):
            if view.revoked or (view.name in newest and newest[view.name].notes.version > view.version):
                continue
            with suppress(PeerFault):
                study = self._driver.run(self._api.fetch_study(federation, view.study))
                newest[view.name] = signed.read_study(
                    study, roster, self._environment.now_s(), lambda _: None
                )
        return [*newest.values()]

    def _check_approval(self, content: Content) -> HealthCheck:
        digest, approved = content.approval.hex(), self._policy.approves(content)
        remedy = f"not approved by this identity, which takes no part in it: read it, then pass --approve {digest} to `veilsum member join`"
        return HealthCheck(
            f"approval of {content.notes.name}",
            ok=True if approved else None,
            detail=f"approved as {digest}" if approved else remedy,
        )

    def _check_disk(self, contents: list[Content]) -> HealthCheck:
        free = shutil.disk_usage(self._identity.folder).free
        largest = max(
            (8 * each.question.elements_of(step) for each in contents for step in each.question.steps),
            default=0,
        )
        needed = max(DISK_FREE_BYTES_MIN, _DISK_COPIES * largest)
        ok = free >= needed
        advice = "" if ok else ": make room, or move the identity's folder"
        return HealthCheck("disk", ok, f"{in_bytes(free)} free, about {in_bytes(needed)} needed{advice}")

    def _check_line(self, contents: list[Content], federation: str) -> Iterator[HealthCheck]:
        """Send as many bytes as a chunk has, and compare the time with the studies' windows."""
        uploads = [_largest_upload(content.question) for content in contents]
        chunks = [
            min(upload, Ring(content.question.ring_bits).packed_bytes(CHUNK_ELEMENTS))
            for content, upload in zip(contents, uploads, strict=True)
        ]
        size = min(max([PROBE_BYTES_MIN, *chunks]), rest.MAX_PROBE_BYTES)
        try:
            answered_s = self._time_probe(federation, 1)
            spent_s = self._time_probe(federation, size)
        except (ClientError, PeerFault) as error:
            yield HealthCheck("upload", ok=False, detail=str(error))
            return
        rate = size / max(spent_s - answered_s, 1e-3)
        yield HealthCheck(
            "upload",
            ok=True,
            detail=f"{8 * rate / 1e6:.3g} Mbit/s, round trip {1000 * answered_s:.0f} ms; {in_bytes(size)} pass in one request",
        )
        for content, upload in zip(contents, uploads, strict=True):
            window_s = content.question.windows.upload
            needed_s = upload / rate
            ok = needed_s <= UPLOAD_SHARE_MAX * window_s
            advice = "" if ok else ". Ask the admin for a longer windows.upload, or use a faster line"
            yield HealthCheck(
                f"window of {content.notes.name}",
                ok,
                f"{in_bytes(upload)} take {needed_s:,.0f} s of the {window_s:,} s to upload{advice}",
            )

    def _time_probe(self, federation: str, size: int) -> float:
        begun_s = self._environment.monotonic_s()
        self._driver.run(self._api.send_probe(federation, size))
        return self._environment.monotonic_s() - begun_s

    def _check_canaries(self, content: Content, federation: str) -> Iterator[HealthCheck]:
        if content.rehearsal is None:
            return
        name = f"canaries of {content.notes.name}"
        if self._records is None:
            yield HealthCheck(
                name, ok=None, detail="not checked: pass your file of records, with the canaries' rows"
            )
            return
        try:
            pack = fetched_pack(
                content, self._driver.run(self._api.fetch_canaries(federation, content.rehearsal.pack))
            )
            found = self._records.check_canaries(content, pack)
        except (ClientError, PeerFault, Misuse, CalibrationError) as error:
            yield HealthCheck(name, ok=False, detail=str(error))
            return
        yield HealthCheck(name, not found.findings, found.describe())


def _largest_upload(question: Question) -> int:
    """Return the bytes of the largest masked vector of a run."""
    return max(
        Ring(COUNT_BITS if step in DISCLOSED_STEPS else question.ring_bits).packed_bytes(
            question.elements_of(step)
        )
        for step in question.steps
    )
