"""What the coordinator alone holds of a large cohort while uploads come in: no member is simulated beside it.

Cards and announcements are signed and of their true lengths, their shares and boxes random bytes; they lie on disk. It fails
above 4 KiB of resident memory a member.

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
from protocol.attempt import Attempt
from protocol.coordinator import Collecting, CoordinatorPhase, Enrolling, Windows
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.merkle import Tree
from protocol.messages import NO_INDICATOR, Entry, KeyCard, Opening, Roster, Terms, Upload, UploadHeader
from protocol.sealing import commitment_tree

BYTES_A_MEMBER = 4096
EXTRACTOR, NOMINATED, LOSS, EXPIRES_S = b"e" * 32, 50, 20, 2_000_000_000


def key_of(member: str) -> SigningKey:
    return SigningKey(member.encode().ljust(32, b"\0"))


def opened(members: int) -> Attempt:
    """An attempt as its coordinator has it: roster and cards were read from bytes."""
    ids = tuple(f"member-{index:05}" for index in range(members))
    admin, coordinator = key_of("admin"), key_of("coordinator")
    signed = Roster.make(
        admin,
        version_number=1,
        federation=admin.public,
        coordinator=coordinator.public,
        members=tuple(Entry(member, key_of(member).public) for member in ids),
        decryptors=ids[:: members // NOMINATED],
        extractors=(EXTRACTOR,),
        readers=(),
        withhold=0,
    )
    roster = Roster.from_bytes(signed.to_bytes())
    enrolling = Enrolling(roster, 0, 1000, loss=LOSS)
    cards = (
        KeyCard.make(
            key_of(member),
            cohort=enrolling.cohort,
            member=member,
            mask_key=AgreementKey(os.urandom(32)).public,
            box_key=AgreementKey(os.urandom(32)).public,
            nonce=os.urandom(32),
            expires_s=EXPIRES_S,
        )
        for member in ids
    )
    manifest = enrolling.with_cards(KeyCard.from_bytes(card.to_bytes()) for card in cards).manifest()
    terms = Terms(
        statistic="test",
        layout=b"",
        elements=10_000,
        ring_bits=32,
        lattice="sums",
        lattice_bits=0,
        chunk_elements=10_000,
        records_max=1000 * members,
        extractor=EXTRACTOR,
        ridges=(),
        noise=b"",
        indicator=NO_INDICATOR,
        margin=0,
        withheld=(),
        evicted=(),
        latest_end_s=EXPIRES_S,
    )
    place = {"cohort": manifest.cohort, "sequence": 0, "attempt": 0, "links": (), "exceptions": ()}
    return Attempt(roster, manifest, Opening.make(coordinator, terms=terms, **place))


def uploads(attempt: Attempt) -> Iterator[Upload]:
    """Announcements that a coordinator admits."""
    secrets = 1 + attempt.neighbour_count
    rows = tuple(os.urandom(16 * secrets) for _ in attempt.decryptors)
    box = os.urandom(36 * secrets + 16)
    for member in attempt.members:
        boxes = tuple(b"" if decryptor == member else box for decryptor in attempt.decryptors)
        digests, commitments = (os.urandom(32),), tuple(os.urandom(16) for _ in range(secrets))
        header = UploadHeader.make(
            key_of(member),
            context=attempt.context,
            member=member,
            lineage=os.urandom(8),
            records=bytes(8),
            salt=os.urandom(32),
            chunk_root=Tree.of(digests).root,
            commitment_root=commitment_tree(commitments, rows).root,
            box_root=Tree.of(boxes).root,
        )
        yield Upload.from_bytes(Upload(header, digests, commitments, rows, boxes).to_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10_000)
    members: int = parser.parse_args().members
    opened(300)  # what a first cohort loads counts for nobody
    before, began_s = resident_bytes(), time.process_time()

    def held() -> float:
        gc.collect()
        return (resident_bytes() - before) / members

    attempt = opened(members)
    cohort = held()
    with tempfile.TemporaryDirectory(prefix="veilsum-announcements-") as folder:
        phase: CoordinatorPhase = Collecting.begin(attempt, Windows(), 0.0, (), Folder(Path(folder)).shelf())
        for upload in uploads(attempt):
            phase = phase.receive(upload, 0.0)
        both = held()
    print(
        f"{members:,} members, {attempt.neighbour_count} neighbours: {cohort:,.0f} B a member for the cohort, {both - cohort:,.0f} "
        f"for announcements, {time.process_time() - began_s:,.0f} CPU s"
    )
    if both > BYTES_A_MEMBER:
        sys.exit(f"announcements: {both:,.0f} B a member, at most {BYTES_A_MEMBER:,}")


if __name__ == "__main__":
    main()
