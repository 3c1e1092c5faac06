"""R3: nothing about a record shows in what a member sends: type, order and length are those of a clean member's."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.records import Records
from protocol.messages import parse
from protocol.rest import OCTETS
from tests.client_sdk.federation import CLASSES, NOISY, WITHHOLDING, Federation

ROWS = 30
"""Rows of member-0: as many as leave enough once some of them are spoilt."""


def clean() -> tuple[Any, Any, list[Any]]:
    rng = np.random.default_rng(7)
    labels = np.arange(ROWS) % len(CLASSES)
    return (
        rng.standard_normal((ROWS, 3)) + labels[:, None],
        labels.astype(float),
        [f"r{row}" for row in range(ROWS)],
    )


def poisoned(how: str) -> Records:  # noqa: C901 - one case a poison
    features, labels, ids = clean()
    match how:
        case "nan":
            features[3, 1] = np.nan
        case "infinite":
            features[3] = np.inf
        case "huge":
            features[3] = 1e308
        case "tiny":
            features[3] = 5e-324
        case "zero row":
            features[3] = 0
        case "unknown label":
            labels[3] = -1
        case "missing label":
            labels[3] = np.nan
        case "extra class":
            labels[3] = len(CLASSES)
        case "duplicate id":
            ids[3] = ids[4]
        case "spent id":
            ids[3] = "spent"
        case "one too many":
            extra = 41 - ROWS
            features = np.vstack([features, features[:extra]])
            labels, ids = np.r_[labels, labels[:extra]], [*ids, *(f"x{row}" for row in range(extra))]
        case "few":
            features, labels, ids = features[:17], labels[:17], ids[:17]
        case "one class":
            labels[:] = 0
        case "no ids":
            return Records(features, labels)
        case "keys":
            return Records(features, [CLASSES[int(label)] for label in labels], ids)
    return Records(features, labels, ids)


EXACT = (
    "nan", "infinite", "huge", "tiny", "zero row", "unknown label", "missing label", "extra class", "duplicate id", "spent id",
    "one too many", "few", "one class", "no ids", "keys",
)  # fmt: skip


def said(folder: Path, records: Records, question: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    """Everything that member-0 sends in a whole run: method, path, length and kind, in order."""
    federation = Federation(folder, question=question)
    if not question.get("noise"):
        spend(federation)
    federation.coordinator.requests.clear()
    cohort = federation.coordinator.open_cohort("p1")
    flows = {m: federation.member(m).enrol(cohort, federation.records(m)) for m in federation.ids[1:]}
    flows = {"member-0": federation.member("member-0").enrol(cohort, records), **flows}
    assert all(not isinstance(each, Exception) for each in federation.together(flows).values())
    while federation.coordinator.next_step(cohort) is not None:
        round_id = federation.coordinator.open_round(cohort)
        results = federation.together(federation.contributions(round_id), stuck=federation.leading_on(cohort))
        assert not any(isinstance(each, Exception) for each in results.values()), results
    names = [*federation.coordinator.cohorts, *federation.coordinator.rounds]
    sent = []
    for request in federation.coordinator.requests:
        assert request.signer is not None
        if request.signer.keyid != "member-0":
            continue
        path = re.sub("[0-9a-f]{64}", lambda found: shorter(found[0], names), request.path)
        for place, name in enumerate(names):
            path = path.replace(name, f"<{place}>")
        kind = type(parse(request.body)).__name__ if octets(request) and "chunks" not in path else ""
        sent.append((request.method, path, len(request.body), kind))
    federation.close()
    return sent


def shorter(name: str, names: list[str]) -> str:
    """A context as its round is named."""
    return name[:16] if name[:16] in names else name


def octets(request: Any) -> bool:
    return bool(request.headers.get("content-type") == OCTETS)


def spend(federation: Federation) -> None:
    """An earlier run takes member-0's record "spent", with others."""
    features, labels, _ = clean()
    cohort = federation.coordinator.open_cohort("p0")
    own = Records(features, labels, ["spent", *(f"old{row}" for row in range(ROWS - 1))])
    flows = {m: federation.member(m).enrol(cohort, federation.records(m, "p0")) for m in federation.ids[1:]}
    federation.together({"member-0": federation.member("member-0").enrol(cohort, own), **flows})
    federation.run(cohort)
    while federation.coordinator.next_step(cohort):
        federation.run(cohort)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str, int, str]]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("protocol.round_spec.CHUNK_ELEMENTS", 8)
        return {
            name: said(tmp_path_factory.mktemp("clean"), poisoned("clean"), question)
            for name, question in (("exact", {}), ("withholding", WITHHOLDING), ("noisy", NOISY))
        }


@pytest.mark.parametrize("how", EXACT)
def test_an_exact_run_sends_what_a_clean_member_sends(
    tmp_path: Path, expected: dict[str, list[tuple[str, str, int, str]]], how: str
) -> None:
    assert said(tmp_path, poisoned(how), {}) == expected["exact"]


@pytest.mark.parametrize("how", ["nan", "extra class", "spent id", "one too many", "few", "duplicate id"])
def test_a_run_that_withholds_sends_what_a_clean_member_sends(
    tmp_path: Path, expected: dict[str, list[tuple[str, str, int, str]]], how: str
) -> None:
    assert said(tmp_path, poisoned(how), WITHHOLDING) == expected["withholding"]


@pytest.mark.parametrize("how", [*(each for each in EXACT if each != "no ids"), "empty"])
def test_a_noisy_chain_sends_what_a_clean_member_sends(
    tmp_path: Path, expected: dict[str, list[tuple[str, str, int, str]]], how: str
) -> None:
    records = Records(np.zeros((0, 3)), np.zeros(0), []) if how == "empty" else poisoned(how)
    assert said(tmp_path, records, NOISY) == expected["noisy"]
