"""Signed records of the vectors' rounds: those that follow from the evidence, and those that a reader must refuse (analysis: Results)."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from unittest.mock import patch

from assurance.vectors.rounds import played
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Certificate,
    Evictions,
    Opening,
    Roster,
    Study,
    Survivor,
    Upload,
)
from veilsum.protocol.record import ResultRecord, sign_record
from veilsum.protocol.rest import round_name
from veilsum.protocol.transcript import Transcript
from veilsum.study.promise import promise_noise
from veilsum.study.views import counts_before

Json = dict[str, Any]
OTHER = "66" * 32


def document_of(round_: str) -> Json:
    """Return the round's file."""
    return played(round_).document


def said(round_: str, attempt: int, form: Any, source: str = "") -> Any:
    """Return an attempt's first message of this type, from `source` if given."""
    document = document_of(round_)
    header = bytes((form.version, form.kind)).hex() + document["attempts"][attempt]["context"]
    for by, _, index in document["attempts"][attempt]["log"]:
        text = document["messages"][index]
        if text.startswith(header) and source in {"", by}:
            return form.from_bytes(bytes.fromhex(text))
    return None


def roster_of(round_: str) -> Roster:
    return Roster.from_bytes(bytes.fromhex(document_of(round_)["roster"]))


def attempt_of(round_: str, attempt: int) -> Attempt:
    document = document_of(round_)
    opening = Opening.from_bytes(bytes.fromhex(document["attempts"][attempt]["opening"]))
    study = Study.from_bytes(bytes.fromhex(document["study"]))
    return Attempt(roster_of(round_), study, played(round_).federation.manifest, opening)


def signed(round_: str, body: Json, signer: str = "coordinator") -> Json:
    """Make a record of these fields, signed by the coordinator or by "admin"."""
    key = SigningKey(bytes.fromhex(document_of(round_)[signer]))
    record = sign_record(ResultRecord.model_validate_json(json.dumps(body)), key)
    return record.model_dump(mode="json")


def honest(round_: str, attempt: int) -> Json:
    """Return the record that an honest coordinator publishes of an attempt with a sum, without the signature."""
    found = attempt_of(round_, attempt)
    kept, terms = document_of(round_)["attempts"][attempt], found.opening.terms
    certificate = said(round_, attempt, Certificate)
    notes = found.content.notes
    return {
        "round": round_name(found.context),
        "context": found.context.hex(),
        "federation": found.roster.federation.hex(),
        "study": found.study.hash.hex(),
        "name": notes.name,
        "version": notes.version,
        "period": found.manifest.period,
        "step": terms.step,
        "cohort": found.manifest.cohort.hex(),
        "terms": terms.hash.hex(),
        "survivors_hash": certificate.survivors_hash.hex(),
        "survivors": [{"member": each.member, "digest": each.digest.hex()} for each in certificate.survivors],
        "evicted": kept["evicted"],
        "withheld": list(terms.withheld),
        "holders": document_of(round_)["attempts"][0]["sum"] if terms.count != NO_CONTEXT else [],
        "reached": document_of(round_)["attempts"][1]["sum"] if terms.rows != NO_CONTEXT else [],
        "counts": list(counts_before(found)),
        "rows": 100,
        "noise": None if (noise := promise_noise(found.spec)) is None else noise.model_dump(),
        "head": None,
        "sums": sha256(json.dumps(kept["sum"]).encode()).hexdigest(),
        "error_bound": None,
        "solution": {"chosen_by": ""},
        "transcript": Transcript.from_json(json.dumps(kept["transcript"])).head.hex(),
    }


def case(name: str, round_: str, attempt: int, body: Json, signer: str = "coordinator") -> Json:
    """Make a case of `result`: a signed record with this body, shown to member-0."""
    inputs: Json = {"round": round_, "attempt": attempt, "record": signed(round_, body, signer)}
    return {"name": name, "function": "result", "input": inputs}


def cases() -> Iterator[Json]:
    """Yield the honest cases."""
    for round_, attempt in (("complete", 0), ("complete", 1), ("evicted", 0), ("count", 2)):
        yield case(f"the attempt {attempt} of {round_}", round_, attempt, honest(round_, attempt))
    yield {"rule": "RESULT-1", **case("a record of a count", "count", 0, honest("count", 0))}
    sum_ = honest("complete", 0)
    yield {"rule": "RESULT-1", **case("a record of an attempt that is VOID", "voided", 0, sum_)}


@dataclass(frozen=True)
class Doctoring:
    """A record that doesn't follow from its round.

    Attributes:
        body: makes the false body from the honest one.
        signer: "coordinator" or "admin".
    """

    name: str
    rule: str
    round: str
    attempt: int
    body: Callable[[Json], Json]
    signer: str = "coordinator"

    @property
    def case(self) -> Json:
        """The doctored record as a case."""
        return case(
            self.name, self.round, self.attempt, self.body(honest(self.round, self.attempt)), self.signer
        )

    @property
    def changes(self) -> Json:
        """Fields that differ from the honest case's record."""
        false, true = (
            each["input"]
            for each in (self.case, case("", self.round, self.attempt, honest(self.round, self.attempt)))
        )
        fields = {name: said for name, said in false["record"].items() if said != true["record"][name]}
        return {"round": self.round, "attempt": self.attempt, "record": fields}


def read(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Verify a record as a reader of the evidence does. Raises PeerFault if it doesn't follow.

    The rounds' vectors are random numbers without a head, so the files aren't checked.
    """
    from client_sdk import verification  # noqa: PLC0415 - records are made without the SDK

    with patch.object(verification, "_check_files"):
        _verify(
            inputs["round"], inputs["attempt"], ResultRecord.model_validate_json(json.dumps(inputs["record"]))
        )
    return {"holds": True}


def _verify(round_: str, attempt: int, record: ResultRecord) -> None:
    from client_sdk.evidence import Evidence  # noqa: PLC0415 - as above
    from client_sdk.result import Result  # noqa: PLC0415 - as above

    found, upload = attempt_of(round_, attempt), said(round_, attempt, Upload, "member-0")
    own = () if upload is None else (upload.header,)
    history = found.roster, found.study, found.manifest, found.opening, said(round_, attempt, Certificate)
    evidence = Evidence("member-0", *history, tuple(map(Survivor.from_header, own)), own)
    transcript = json.dumps(document_of(round_)["attempts"][attempt]["transcript"]).encode()
    Result(evidence, record, None, said(round_, attempt, Evictions), transcript).verify()
