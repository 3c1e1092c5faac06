"""What a recording tells later: open a recorded federation with the private keys of the problems that were broken since.

A recorder has every message of a round, and later every X25519 private key of it, or every ML-KEM key, or both. This
script does all that it can do with them: it derives pair keys, opens boxes, rebuilds secrets from shares, in boxes and
in reveals, and takes off masks. A secret that the keys don't give is guessed, by what a faulty member might have put
in its place. It shares no line with the product: messages, hashes and the graph are the second implementation's.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from assurance.recording.keys import KEY_SETS, Folder, Keys, guess_agreements, guess_encapsulated
from assurance.recording.recorded import VERSION, Recording, Round, load
from assurance.reference import wire
from assurance.reference.reference import peers, recipients, secrets
from assurance.reference.wire import H, hkdf, pieces, u

SHARE_BYTES, COMMITMENT_BYTES = 36, 16

Pair = tuple[str, str]
"""Two members, the lower id first; or a dealer and a decryptor."""


def ordered(one: str, other: str) -> Pair:
    return min(one, other), max(one, other)


class Opener:
    """Tries to open one round with some private keys.

    Attributes:
        boxes: the boxes that are there, by dealer and decryptor.
        opened_boxes: which of them opened.
        self_seeds: b_u by member, each found to be the one committed to.
        pair_seeds: r_uv by pair, likewise.
        tried: how many keys were tried.
    """

    def __init__(self, recording: Recording, of: Round, keys: Keys) -> None:
        self.recording, self.round, self.keys = recording, of, keys
        self.party, self.m = of.party, of.party.m
        self.shares: dict[tuple[str, int], dict[int, bytes]] = {}
        self.boxes = {
            (dealer, decryptor): upload.boxes[x - 1]
            for dealer, upload in of.uploads.items()
            for decryptor, x in self.party.places.items()
            if decryptor != dealer
        }
        self.opened_boxes: set[Pair] = set()
        self.self_seeds, self.pair_seeds = dict[str, bytes](), dict[Pair, bytes]()
        self.tried = 0

    def run(self) -> None:
        """Do all that the keys allow."""
        for reveal in self.round.reveals:
            self._read_reveal(reveal)
        for member, folder in self.keys.folders.items():
            self._search_folder(member, folder)
        for low, high in itertools.combinations(self.m.members, 2):
            self._try_boxes(low, high)
            self._try_masks(low, high)
        self._rebuild()

    # Keys (wire: Keys)

    def _pair_keys(self, low: str, high: str, purpose: str) -> Iterator[bytes]:
        """Yield a pair's keys K_i, i the round's sequence, that the recorder can derive or guess."""
        for secret, bound in self._secrets(low, high):
            self.tried += 1
            yield self._ratcheted(hkdf(secret, self.party.manifest_hash, purpose, *bound), 0)

    def _ratcheted(self, key: bytes, start: int) -> bytes:
        """Derive K_i from the K of sequence `start`."""
        for sequence in range(start + 1, self.party.opening.sequence + 1):
            key = hkdf(key, b"", "ratchet", self.m.cohort, u(64, sequence))
        return key

    def _secrets(self, low: str, high: str) -> Iterable[tuple[bytes, tuple[Any, ...]]]:
        """Return what K_0 may be made of: the X25519 secret and an encapsulated one, and what a member might have made of one of them."""
        cohort, (sender, to) = self.m.cohort, (low, high) if high in recipients(self.m, low) else (high, low)
        sent = self.recording.pairings.get((self.party.manifest_hash, sender))
        if sent is None or high not in peers(self.m, low):
            return ()
        ciphertext = sent[recipients(self.m, sender).index(to)]
        one, other = (self.recording.enrolments[cohort, each].card.X25519_key for each in (low, high))
        mlkem_key = self.recording.enrolments[cohort, to].ML_KEM_key
        bound = cohort, sender, to, H("mlkem-key", mlkem_key), H("ciphertext", ciphertext)
        agreed, encapsulated = self.keys.agree(one, other), self.keys.decapsulate(mlkem_key, ciphertext)
        if agreed and encapsulated:
            return [(agreed + encapsulated, bound)]
        if self.keys.folders and not agreed and not encapsulated:
            return ()  # both guessed: tried without a folder
        known = [*self.keys.bytes[low], *self.keys.bytes[high], *filter(None, [agreed, encapsulated])]
        firsts = {agreed} if agreed else {*guess_agreements(one, other, known).values()}
        seconds = (
            {encapsulated} if encapsulated else {*guess_encapsulated(ciphertext, mlkem_key, known).values()}
        )
        joined = itertools.product(firsts, seconds)
        guesses = {each for first, second in joined for each in (first + second, second + first)}
        return itertools.product(sorted(guesses - {b""}), [bound, (cohort, low, high)])

    def _try_boxes(self, low: str, high: str) -> None:
        wanted = [pair for pair in ((low, high), (high, low)) if pair in self.boxes]
        if not wanted:
            return
        for key in self._pair_keys(low, high, "pair-box"):
            opened = [self._open_box(key, *pair) for pair in wanted]
            if all(opened):
                return

    def _open_box(self, key: bytes, dealer: str, decryptor: str) -> bool:
        """Open a box with the pair's key."""
        context, salt = self.party.context, self.round.uploads[dealer].header.salt
        box_key = hkdf(key, context + salt, "box-key", dealer, decryptor)
        try:
            shares = AESGCM(box_key).decrypt(bytes(12), self.boxes[dealer, decryptor], context)
        except InvalidTag:
            return False
        self.opened_boxes.add((dealer, decryptor))
        for index, share in enumerate(pieces(shares, SHARE_BYTES)):
            self._note_share(dealer, decryptor, index, share)
        return True

    def _try_masks(self, low: str, high: str) -> None:
        for key in self._pair_keys(low, high, "pair-mask"):
            if self._derive_pair_seed(low, high, key):
                return

    def _derive_pair_seed(self, low: str, high: str, key: bytes) -> bool:
        """Derive r_uv from the pair's key, and note it."""
        return self._note_pair_seed(low, high, hkdf(key, self.party.context, "mask-seed", low, high))

    # Folders

    def _search_folder(self, member: str, folder: Folder) -> None:
        """Try every run of bytes that a member stored as each secret that it may be: a share, a seed, a key of a pair."""
        if member in self.party.places:
            shares = [each for each in folder.windows(SHARE_BYTES) if max(each[3::4]) < 128]  # words below p
            for share, dealer in itertools.product(shares, self.round.uploads):
                for index in range(len(secrets(self.m, dealer))):
                    self._note_share(dealer, member, index, share)
        for window in folder.windows(32):
            self._note_self_seed(member, window)
            keys = {self._ratcheted(window, start) for start in range(self.party.opening.sequence + 1)}
            for other in self.m.members:
                if other != member:
                    self._try_keys(*ordered(member, other), window, keys)

    def _try_keys(self, low: str, high: str, seed: bytes, keys: Iterable[bytes]) -> None:
        self._note_pair_seed(low, high, seed)
        for key in keys:
            self.tried += 1
            self._derive_pair_seed(low, high, key)
            for pair in ((low, high), (high, low)):
                if pair in self.boxes:
                    self._open_box(key, *pair)

    # Shares and secrets (wire: Uploads, wire: Reveals)

    def _note_share(self, dealer: str, decryptor: str, index: int, share: bytes) -> None:
        """Note a share that is the one committed to."""
        x = self.party.places[decryptor]
        row = pieces(self.round.uploads[dealer].share_rows[x - 1], COMMITMENT_BYTES)
        if self.party.commit_share(dealer, decryptor, index, share) == row[index]:
            self.shares.setdefault((dealer, index), {})[x] = share

    def _read_reveal(self, reveal: Any) -> None:
        owed = self.party.owed(self.round.survivors, reveal.evicted)
        held = [dealer for dealer in owed if dealer in self.round.holders[reveal.member]]
        for dealer, run in zip(held, reveal.runs, strict=True):
            for index, share in zip(owed[dealer], pieces(run, SHARE_BYTES), strict=True):
                self._note_share(dealer, reveal.member, index, share)

    def _rebuild(self) -> None:
        for (dealer, index), shares in self.shares.items():
            if len(shares) < self.m.t:
                continue
            secret = wire.recover(dict(itertools.islice(shares.items(), self.m.t)))
            if index:
                self._note_pair_seed(*ordered(dealer, secrets(self.m, dealer)[index]), secret)
            else:
                self._note_self_seed(dealer, secret)

    def _note_self_seed(self, member: str, seed: bytes) -> None:
        """Note b_u if it is the one committed to."""
        if self._is_committed(member, 0, seed):
            self.self_seeds[member] = seed

    def _note_pair_seed(self, low: str, high: str, seed: bytes) -> bool:
        """Note r_uv if one of the pair committed to it; return whether it did."""
        for one, other in ((low, high), (high, low)):
            shared = secrets(self.m, one)
            if other in shared and self._is_committed(one, shared.index(other), seed):
                self.pair_seeds[low, high] = seed
                return True
        return False

    def _is_committed(self, member: str, index: int, secret: bytes) -> bool:
        upload = self.round.uploads.get(member)
        return upload is not None and upload.secret_commitments[index] == self.party.commit(
            member, index, secret
        )

    # Vectors (wire: Uploads)

    def groups(self) -> list[tuple[str, ...]]:
        """Return the smallest sets of members that sent whole vectors and whose masks are known, but for those among the set.

        The sum of such a set is open to the recorder. A set of one is an opened vector.
        """
        sent = [member for member in self.m.members if self.round.masked(member) is not None]
        groups, left = list[tuple[str, ...]](), {*sent}
        while left:
            group, reached = set[str](), {min(left)}
            while reached:
                member = reached.pop()
                group.add(member)
                near = secrets(self.m, member)[1:]
                reached |= {v for v in near if ordered(member, v) not in self.pair_seeds} - group
            left -= group
            if group <= {*sent} and group <= {*self.self_seeds}:
                groups.append(tuple(sorted(group)))
        return groups

    def unmask(self, group: Iterable[str]) -> list[int]:
        """Take the known masks off the sum of a group's masked vectors."""
        members = tuple(group)
        total = [0] * self.party.elements
        for member in members:
            outside = ((i, v) for i, v in enumerate(secrets(self.m, member)) if i and v not in members)
            seeds = {i: self.pair_seeds[ordered(member, v)] for i, v in outside}
            chunks = self.round.masked(member)
            self.party.unmask(total, member, chunks, {0: self.self_seeds[member], **seeds})
        return [value % 2**self.party.bits for value in total]


# Findings


@dataclass(frozen=True)
class Finding:
    """What some private keys opened of one round.

    Attributes:
        context: the round's.
        step: its step.
        sent: members whose whole masked vectors were recorded.
        survivors: members in the certified sum.
        boxes: boxes that opened and all boxes, by dealer.
        opened: the smallest sets of members whose sum was opened, each equal to the sum of the recorded vectors.
        pair_seeds: how many masks of pairs were found.
        tried: how many keys were tried.
    """

    context: bytes
    step: str
    sent: tuple[str, ...]
    survivors: tuple[str, ...]
    boxes: dict[str, tuple[int, int]]
    opened: tuple[tuple[str, ...], ...]
    pair_seeds: int
    tried: int

    @property
    def vectors(self) -> tuple[str, ...]:
        """Members whose own vectors were opened."""
        return tuple(group[0] for group in self.opened if len(group) == 1)

    def fate_of(self, member: str) -> str:
        """Return what became of a member's vector."""
        if member not in self.sent:
            return "unsent"
        return "opened" if member in self.vectors else "closed"

    @property
    def boxes_opened(self) -> int:
        return sum(opened for opened, _ in self.boxes.values())

    @property
    def boxes_sent(self) -> int:
        return sum(sent for _, sent in self.boxes.values())


def key_sets(recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a recorder may have: private keys of everybody, or a folder that the recording holds."""
    return *KEY_SETS, *recorded.get("folders", {})


def open_recording(recorded: Mapping[str, Any], chosen: str) -> list[Finding]:
    """Try one of `key_sets` on each round of a recording.

    Raises ValueError if what was opened is not what members summed: the recording, or this script, is wrong.
    """
    recording = Recording(recorded)
    keys = Keys(recorded, chosen, recording.is_public)
    findings = []
    for of in recording.rounds.values():
        if not of.uploads:
            continue
        opener = Opener(recording, of, keys)
        opener.run()
        plain, modulus = recorded["vectors"][of.party.context.hex()], 2**of.party.bits
        groups = opener.groups()
        for group in groups:
            columns = zip(*(plain[member] for member in group), strict=True)
            summed = [sum(column) % modulus for column in columns]
            if opener.unmask(group) != summed:
                raise ValueError(f"the sum of {', '.join(group)} was opened, and isn't theirs")
        boxes = {
            dealer: (
                sum(pair in opener.opened_boxes for pair in opener.boxes if pair[0] == dealer),
                sum(pair[0] == dealer for pair in opener.boxes),
            )
            for dealer in of.uploads
        }
        sent = tuple(member for member in of.party.m.members if of.masked(member) is not None)
        survivors = tuple(each.member for each in of.survivors)
        found = (of.party.context, of.party.terms.step, sent, survivors, boxes, tuple(groups))
        findings.append(Finding(*found, len(opener.pair_seeds), opener.tried))
    return findings


def table(by_keys: Mapping[str, list[Finding]]) -> Iterator[str]:
    """Write one row for each member of each round, and one column for each set of keys."""

    def row(name: str, cells: Iterable[str]) -> str:
        return f"{name:22}" + "".join(f"{cell:>15}" for cell in cells)

    for findings in zip(*by_keys.values(), strict=True):
        first = findings[0]
        yield row(f"{first.step} {first.context.hex()[:16]}", by_keys)
        for dealer in first.boxes:
            yield row(
                dealer,
                [f"{found.fate_of(dealer)} {'/'.join(map(str, found.boxes[dealer]))}" for found in findings],
            )
        sums = [
            " and ".join(str(len(group)) for group in found.opened if len(group) > 1) for found in findings
        ]
        yield row("sum of members", [each or "-" for each in sums])
        yield row("keys tried", [f"{found.tried:,}" for found in findings])
        yield ""


def main(argv: Sequence[str] | None = None, write: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("recording", type=Path, help="a recording: .json or .json.gz")
    parser.add_argument(
        "--keys", help="none, x25519, mlkem, both, or a folder of the recording; by default each"
    )
    given = parser.parse_args(argv)
    recorded = load(given.recording)
    sets = key_sets(recorded)
    if given.keys and given.keys not in sets:
        parser.error(f"--keys: this recording has {', '.join(sets)}")
    write(f"protocol version {VERSION}, {len(recorded['keys'])} members\n")
    for line in table(
        {chosen: open_recording(recorded, chosen) for chosen in ([given.keys] if given.keys else sets)}
    ):
        write(line)


if __name__ == "__main__":
    main()
