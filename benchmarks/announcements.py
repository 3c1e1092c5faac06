"""The coordinator's memory for a large cohort while uploads arrive, without simulated members in the same process.

Cards and announcements are signed and have their true lengths; ML-KEM keys, shares and boxes are random bytes. Announcements are
stored on disk. Fails above 4 KiB of resident memory for each member.

    .venv/bin/python -m benchmarks.announcements --members 10000
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.disk import Folder
from benchmarks.scale import resident_bytes
from tests.support.simulator import simulated_content, simulated_question
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Collecting, CoordinatorPhase, Enrolling
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import AgreementKey, hash_mlkem_key
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Enrolment,
    Entry,
    KeyCard,
    Opening,
    Roster,
    Study,
    Terms,
    Upload,
    UploadHeader,
)
from veilsum.protocol.messages.cohort import MLKEM_KEY_BYTES
from veilsum.protocol.sealing import commitment_tree
from veilsum.protocol.study import DAY_S, SUM_STEP

BYTES_A_MEMBER = 4096
NOMINATED, NOW_S = 50, 1_800_000_000
EXPIRES_S = NOW_S + 80 * DAY_S


def key_of(member: str) -> SigningKey:
    return SigningKey(member.encode().ljust(32, b"\0"))


def opened(members: int) -> Attempt:
    """Make an attempt as its coordinator has it, with roster and cards parsed from bytes."""
    ids = tuple(f"member-{index:05}" for index in range(members))
    admin, coordinator = key_of("admin"), key_of("coordinator")
    signed = Roster.make_signed(
        admin,
        number=1,
        name="benchmark",
        federation=admin.public,
        coordinator=coordinator.public,
        study_key=admin.public,
        members=tuple(Entry(member, key_of(member).public) for member in ids),
        decryptors=ids[:: members // NOMINATED],
        readers=(),
        revoked=(),
    )
    roster = Roster.from_bytes(signed.to_bytes())
    question = {**simulated_question(members), "members_min": members, "loss": 20}
    content = simulated_content(question, EXPIRES_S)
    study = Study.make_signed(admin, federation=admin.public, content=content.to_bytes())
    enrolling = Enrolling(roster, study, 0, "period-0")

    def enrolment_of(member: str) -> Enrolment:
        mlkem_key = os.urandom(MLKEM_KEY_BYTES)
        card = KeyCard.make_signed(
            key_of(member),
            cohort=enrolling.cohort,
            member=member,
            x25519_key=AgreementKey(os.urandom(32)).public,
            mlkem_key_hash=hash_mlkem_key(mlkem_key),
            nonce=os.urandom(32),
            expires_s=EXPIRES_S,
            serial=1,
        )
        return Enrolment.from_bytes(Enrolment(card, mlkem_key).to_bytes())

    manifest = enrolling.with_enrolments(map(enrolment_of, ids)).make_manifest()
    terms = Terms(
        step=SUM_STEP,
        count=NO_CONTEXT,
        rows=NO_CONTEXT,
        withheld=(),
        evicted=(),
        material=NO_CONTEXT,
        latest_end_s=NOW_S + DAY_S,
    )
    opening = Opening.make_signed(
        coordinator, cohort=manifest.cohort, sequence=0, attempt=0, links=(), terms=terms
    )
    return Attempt(roster, study, manifest, opening)


def uploads(attempt: Attempt) -> Iterator[Upload]:
    """Yield announcements that a coordinator accepts."""
    secrets = 1 + attempt.manifest.degree
    rows = tuple(os.urandom(16 * secrets) for _ in attempt.decryptors)
    box = os.urandom(36 * secrets + 16)
    for member in attempt.members:
        boxes = tuple(b"" if decryptor == member else box for decryptor in attempt.decryptors)
        digests, commitments = (os.urandom(32),), tuple(os.urandom(16) for _ in range(secrets))
        header = UploadHeader.make_signed(
            key_of(member),
            context=attempt.context,
            member=member,
            salt=os.urandom(32),
            chunk_root=Tree(digests).root,
            commitment_root=commitment_tree(commitments, rows).root,
            box_root=Tree(boxes).root,
        )
        yield Upload.from_bytes(Upload(header, digests, commitments, rows, boxes).to_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10_000)
    members: int = parser.parse_args().members
    opened(300)  # the first cohort also loads modules, which must not count
    before, began_s = resident_bytes(), time.process_time()

    def held() -> float:
        gc.collect()
        return (resident_bytes() - before) / members

    attempt = opened(members)
    cohort = held()
    with tempfile.TemporaryDirectory(prefix="veilsum-announcements-") as folder:
        phase: CoordinatorPhase = Collecting.begin(attempt, NOW_S, (), Folder(Path(folder)).shelf())
        for upload in uploads(attempt):
            phase = phase.receive(upload, NOW_S)
        both = held()
    print(
        f"{members:,} members, {attempt.manifest.degree} neighbours: {cohort:,.0f} B a member for the cohort, {both - cohort:,.0f} "
        f"for announcements, {time.process_time() - began_s:,.0f} CPU s"
    )
    if both > BYTES_A_MEMBER:
        sys.exit(f"announcements: {both:,.0f} B a member, at most {BYTES_A_MEMBER:,}")


if __name__ == "__main__":
    main()
