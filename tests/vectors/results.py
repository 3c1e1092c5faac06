"""Signed records over the rounds of the vectors: what follows from the evidence, and what a reader must refuse (protocol §4.8)."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from client_sdk.client_result import ClientEvidence, ClientResult
from client_sdk.evidence import Evidence
from client_sdk.result import Result
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import HelperCertificate, HelperCounted, HelperOpening, HelperUpload
from protocol.identity import SigningKey
from protocol.messages import Certificate, Evictions, Manifest, Opening, Roster, Survivor, Upload
from protocol.published import ResultRecord
from protocol.record import sign_record
from protocol.recount import class_floor
from protocol.rest import round_name
from protocol.transcript import Transcript
from tests.vectors import helping
from tests.vectors.rounds import played

Json = dict[str, Any]
HELPERS = "helpers"
READER = {HELPERS: "client-0"}
"""Who reads a record: in rounds of members member-0."""
NO_BYTES = sha256(b"").hexdigest()
OTHER = "66" * 32


def document_of(round_: str) -> Json:
    """The round's file."""
    return helping.played()[1] if round_ == HELPERS else played(round_).document


def said(round_: str, attempt: int, form: Any, source: str = "") -> Any:
    """The first message of this form, by this one, that is bound to an attempt."""
    document = document_of(round_)
    header = bytes((form.version, form.kind)).hex() + document["attempts"][attempt]["context"]
    for by, _, index in document["attempts"][attempt]["log"]:
        text = document["messages"][index]
        if text.startswith(header) and source in {"", by}:
            return form.from_bytes(bytes.fromhex(text))
    return None


def roster_of(round_: str) -> Roster:
    return Roster.from_bytes(bytes.fromhex(document_of(round_)["roster"]))


def members_attempt(round_: str, attempt: int) -> Attempt:
    document = document_of(round_)
    opening = Opening.from_bytes(bytes.fromhex(document["attempts"][attempt]["opening"]))
    return Attempt(roster_of(round_), played(round_).federation.manifest, opening)


def helpers_attempt(attempt: int) -> HelperAttempt:
    text = document_of(HELPERS)["attempts"][attempt]["opening"]
    return HelperAttempt(roster_of(HELPERS), HelperOpening.from_bytes(bytes.fromhex(text)))


def counted_of(attempt: int) -> HelperCounted:
    """What a client is shown."""
    certificate: HelperCertificate = said(HELPERS, attempt, HelperCertificate)
    return certificate.counted(READER[HELPERS])


def signed(round_: str, body: Json) -> Json:
    """The record of these fields, under the coordinator's signature."""
    key = SigningKey(bytes.fromhex(document_of(round_)["coordinator"]))
    record = sign_record(ResultRecord.model_validate_json(json.dumps(body)), key)
    return record.model_dump(mode="json")


def honest(round_: str, attempt: int) -> Json:
    """What a coordinator publishes of an attempt that has a sum; without the signature."""
    found: Any = helpers_attempt(attempt) if round_ == HELPERS else members_attempt(round_, attempt)
    kept, terms = document_of(round_)["attempts"][attempt], found.opening.terms
    form: Any = HelperCertificate if round_ == HELPERS else Certificate
    survivors = said(round_, attempt, form).survivors
    body: Json = {
        "mode": "helpers" if round_ == HELPERS else "members",
        "round": round_name(found.context),
        "federation": found.roster.federation.hex(),
        "cohort": found.manifest.cohort.hex(),
        "context": found.context.hex(),
        "terms": terms.hash.hex(),
        "extractor": terms.extractor.hex(),
        "statistic": terms.statistic,
        "survivors": [{"member": each.member, "digest": each.digest.hex()} for each in survivors],
        "records": 100,
        "weights_sha256": None,
        "sums_sha256": sha256(json.dumps(kept["sum"]).encode()).hexdigest(),
        "transcript": None,
        "weights_error_bound": None,
        "solution": {"chosen_by": ""},
    }
    if round_ == HELPERS:
        closing, members = kept["closing"], found.manifest.clients
        return body | {
            "closing": closing,
            "members": members,
            "outvoted": kept["outvoted"],
            "weights_sha256": NO_BYTES,
        }
    body |= {
        "closing": said(round_, attempt, Certificate).past.closing.hex(),
        "members": len(found.members),
        "evicted": kept["evicted"],
        "withheld": list(terms.withheld),
        "transcript": Transcript.from_json(json.dumps(kept["transcript"])).head.hex(),
    }
    if any(terms.indicator):
        floor = class_floor(found.manifest, terms.margin)
        counted = document_of(round_)["attempts"][attempt - 1]["sum"]
        body["rare"] = {
            "indicator": terms.indicator.hex(),
            "margin": terms.margin,
            "floor": floor,
            "holders": counted,
        }
    return body


def case(name: str, round_: str, attempt: int, body: Json, counted: HelperCounted | None = None) -> Json:
    """A case of `result`: a record that this body makes, shown to the round's reader."""
    inputs: Json = {"round": round_, "attempt": attempt, "record": signed(round_, body)}
    if round_ == HELPERS:
        inputs["counted"] = (counted or counted_of(attempt)).to_bytes().hex()
    return {"name": name, "function": "result", "input": inputs}


def cases() -> Iterator[Json]:
    """The honest ones."""
    for round_, attempt in (
        ("complete", 0),
        ("complete", 1),
        ("evicted", 0),
        ("indicator", 1),
        (HELPERS, 0),
        (HELPERS, 1),
    ):
        yield case(f"the attempt {attempt} of {round_}", round_, attempt, honest(round_, attempt))


@dataclass(frozen=True)
class Doctoring:
    """A record, or a proof beside it, that says what does not follow.

    Attributes:
        body: the record's, from the honest one.
        counted: the proof, from the honest one.
    """

    name: str
    clause: str
    round: str
    attempt: int
    body: Callable[[Json], Json] = dict
    counted: Callable[[HelperCounted], HelperCounted] | None = None

    @property
    def case(self) -> Json:
        """As in `cases`."""
        shown = self.counted and self.counted(counted_of(self.attempt))
        return case(self.name, self.round, self.attempt, self.body(honest(self.round, self.attempt)), shown)

    @property
    def changes(self) -> Json:
        """What is not as in the honest case: fields of its record, or the proof."""
        false, true = (
            each["input"]
            for each in (self.case, case("", self.round, self.attempt, honest(self.round, self.attempt)))
        )
        fields = {name: said for name, said in false["record"].items() if said != true["record"][name]}
        proof = {"counted": false["counted"]} if self.counted else {}
        return {"round": self.round, "attempt": self.attempt, "record": fields, **proof}


def read(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reader of the evidence makes of a record; PeerFault where it does not follow."""
    verify = _read_as_client if inputs["round"] == HELPERS else _read_as_member
    record = ResultRecord.model_validate_json(json.dumps(inputs["record"]))
    try:
        verify(inputs["round"], inputs["attempt"], record, inputs)
    except PeerFault as fault:
        # All that a record says stands by then: the statistic "test" asks for no head that could be looked at.
        if fault.cause is not Cause.TERMS_REFUSED:
            raise
        return {"holds": True}
    raise AssertionError("a round of no question has a head")


def _read_as_client(_round: str, attempt: int, record: ResultRecord, inputs: Mapping[str, Any]) -> None:
    client = READER[HELPERS]
    found, upload = helpers_attempt(attempt), said(HELPERS, attempt, HelperUpload, client)
    evidence = ClientEvidence(client, found.roster, found.opening, upload)
    ClientResult(evidence, HelperCounted.from_bytes(bytes.fromhex(inputs["counted"])), record, b"").verify()


def _read_as_member(round_: str, attempt: int, record: ResultRecord, _inputs: Mapping[str, Any]) -> None:
    found, header = members_attempt(round_, attempt), said(round_, attempt, Upload, "member-0").header
    manifest: Manifest = found.manifest
    history = found.roster, manifest, found.opening, said(round_, attempt, Certificate)
    evidence = Evidence("member-0", *history, (Survivor.of(header),), header)
    Result(evidence, record, None, said(round_, attempt, Evictions)).verify()
