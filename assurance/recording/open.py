"""What a recording tells later: open a recorded federation with the private keys of the problems that were broken since.

    python -m assurance.recording.open assurance/recording/version-3.json.gz

A recorder has every message of a round, and later every X25519 private key of it, or every ML-KEM key, or both. This
script does all that it can do with them: it derives pair keys, opens boxes, rebuilds secrets from shares, in boxes and
in reveals, and takes off masks. A secret that the keys don't give is guessed, by what a faulty member might have put
in its place. It shares no line with the product; sections are those of docs/protocol.
"""

import argparse
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from assurance.recording.keys import KEY_SETS, Folder, Keys, guess_agreements, guess_encapsulated
from assurance.recording.messages import MANIFEST_KIND, hashed, info
from assurance.recording.recorded import Recording, Round, load, pieces

P = 2**31 - 1
SHARE_BYTES, COMMITMENT_BYTES = 36, 16

Pair = tuple[str, str]
"""Two members, the lower id first; or a dealer and a decryptor."""


def ordered(one: str, other: str) -> Pair:
    return min(one, other), max(one, other)


def hkdf(secret: bytes, salt: bytes, context: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, context).derive(secret)


def recover(shares: Mapping[int, bytes]) -> bytes | None:
    """Rebuild a secret from its shares at x (wire: Keys); None if a limb is out of range."""
    limbs = [0] * 9
    for x, share in shares.items():
        weight = 1
        for other in shares.keys() - {x}:
            weight = weight * other * pow(other - x, -1, P) % P
        words = struct.unpack("<9I", share)
        limbs = [(limb + weight * word) % P for limb, word in zip(limbs, words, strict=True)]
    if max(limbs) >= 2**30 or limbs[8] >= 2**16:
        return None
    whole: int = sum(limb << 30 * place for place, limb in enumerate(limbs))
    return whole.to_bytes(32, "little")


def keystream(seed: bytes, bits: int, count: int) -> list[int]:
    """Return G(seed) modulo 2^bits (wire: Keys)."""
    size = 4 if bits <= 32 else 8
    stream = Cipher(AES256(seed), CTR(bytes(16))).encryptor().update(bytes(size * count))
    return [int.from_bytes(each, "little") % 2**bits for each in pieces(stream, size)]


def ring_of(version: int, manifest: Any) -> list[str]:
    """Return the members in the ring's order (appendix A)."""
    beacon = hashed(version, "cards", manifest.cohort, manifest.cards_root)
    return sorted(manifest.members, key=lambda each: hashed(version, "ring", beacon, each.encode()))


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
        self.recording, self.round, self.keys, self.version = recording, of, keys, recording.version
        self.manifest = of.manifest
        head = bytes((self.version, MANIFEST_KIND))
        self.manifest_hash = recording.hashed("manifest", head + self.manifest.raw)
        self.ring = ring_of(self.version, self.manifest)
        self.neighbours = {member: self._neighbours(member) for member in self.manifest.members}
        self.places = {member: place for place, member in enumerate(self.manifest.decryptors)}
        self.shares: dict[tuple[str, int], dict[int, bytes]] = {}
        self.boxes = {
            (dealer, decryptor): upload.boxes[place]
            for dealer, upload in of.uploads.items()
            for decryptor, place in self.places.items()
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
        for low, high in itertools.combinations(self.manifest.members, 2):
            self._try_boxes(low, high)
            self._try_masks(low, high)
        self._rebuild()

    # The graph (analysis: Sizes), and who encapsulates to whom (wire: Cohorts)

    def _neighbours(self, member: str) -> list[str]:
        n, k = len(self.manifest.members), self.manifest.degree
        if k == n - 1:
            return [each for each in self.manifest.members if each != member]
        at = self.ring.index(member)
        steps = (step for step in range(-(k // 2), k // 2 + 1) if step)
        return sorted(self.ring[(at + step) % n] for step in steps)

    def _encapsulates(self, one: str, other: str) -> bool:
        """Return whether `one` is who encapsulates to the `other`."""
        if other in self.neighbours[one]:
            n = len(self.manifest.members)
            complete = self.manifest.degree == n - 1
            circle = self.manifest.members if complete else self.ring
            distance = (circle.index(other) - circle.index(one)) % n
            if complete and 2 * distance == n:
                return one < other
            return bool(2 * distance < n if complete else distance <= self.manifest.degree // 2)
        both = one in self.places and other in self.places
        return one < other if both else other in self.places

    def _ciphertext(self, low: str, high: str) -> tuple[str, str, bytes] | None:
        """Return who encapsulated, to whom, and the ciphertext of two members that share keys; None if it wasn't sent."""
        sender, recipient = (low, high) if self._encapsulates(low, high) else (high, low)
        peers = (each for each in self.manifest.members if self._share_keys(sender, each))
        recipients = [each for each in peers if self._encapsulates(sender, each)]
        sent = self.recording.pairings.get((self.manifest_hash, sender))
        if sent is None or len(sent) != len(recipients):
            return None
        return sender, recipient, sent[recipients.index(recipient)]

    def _share_keys(self, one: str, other: str) -> bool:
        decrypts = one in self.places or other in self.places
        return one != other and (decrypts or other in self.neighbours[one])

    # Keys (wire: Keys)

    def _public(self, member: str, purpose: str) -> bytes:
        card = self.recording.cards[self.manifest.cohort, member]
        key: bytes = (
            card.x25519_key if self.version == 4 else getattr(card, purpose.replace("pair-", "") + "_key")
        )
        return key

    def _pair_keys(self, low: str, high: str, purpose: str) -> Iterator[bytes]:
        """Yield a pair's keys K_i, i the round's sequence, that the recorder can derive or guess."""
        secrets = self._secrets_of_3 if self.version == 3 else self._secrets_of_4
        for secret, context in secrets(low, high, purpose):
            self.tried += 1
            yield self._ratcheted(hkdf(secret, self.manifest_hash, context), 0)

    def _ratcheted(self, key: bytes, start: int) -> bytes:
        """Derive K_i from the K of sequence `start`."""
        for sequence in range(start + 1, self.round.opening.sequence + 1):
            step = info(self.version, "ratchet", self.manifest.cohort, sequence.to_bytes(8, "little"))
            key = hkdf(key, b"", step)
        return key

    def _secrets_of_3(self, low: str, high: str, purpose: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield secrets and contexts from which K_0 may be derived: in version 3 the X25519 secret alone."""
        publics = self._public(low, purpose), self._public(high, purpose)
        agreed = self.keys.agree(*publics)
        secrets = {agreed} if agreed else {*guess_agreements(*publics, ()).values()}
        context = info(3, purpose, self.manifest.cohort, low.encode(), high.encode())
        return itertools.product(sorted({*secrets} - {b""}), [context])

    def _secrets_of_4(self, low: str, high: str, purpose: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same of version 4: the X25519 secret and an encapsulated one, and what a member might have made of one of them."""
        found = self._ciphertext(low, high)
        if found is None:
            return iter(())
        sender, recipient, ciphertext = found
        cohort, hashed = self.manifest.cohort, self.recording.hashed
        publics = self._public(low, purpose), self._public(high, purpose)
        mlkem_key = self.recording.mlkem_keys[cohort, recipient]
        bound = hashed("mlkem-key", mlkem_key), hashed("ciphertext", ciphertext)
        contexts = [info(4, purpose, cohort, sender.encode(), recipient.encode(), *bound)]
        agreed, encapsulated = self.keys.agree(*publics), self.keys.decapsulate(mlkem_key, ciphertext)
        if agreed and encapsulated:
            return iter([(agreed + encapsulated, contexts[0])])
        if self.keys.folders and not agreed and not encapsulated:
            return iter(())  # both guessed: tried without a folder
        known = [*self.keys.bytes[low], *self.keys.bytes[high], *filter(None, [agreed, encapsulated])]
        firsts = {agreed} if agreed else {*guess_agreements(*publics, known).values()}
        seconds = (
            {encapsulated} if encapsulated else {*guess_encapsulated(ciphertext, mlkem_key, known).values()}
        )
        joined = itertools.product(firsts, seconds)
        secrets = {each for one, other in joined for each in (one + other, other + one)}
        contexts += [info(version, purpose, cohort, low.encode(), high.encode()) for version in (3, 4)]
        return itertools.product(sorted(secrets - {b""}), contexts)

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
        context, salt = self.round.context, self.round.uploads[dealer].header.salt
        box_key = hkdf(
            key, context + salt, info(self.version, "box-key", dealer.encode(), decryptor.encode())
        )
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
        if high not in self.neighbours[low]:
            return False
        context = info(self.version, "mask-seed", low.encode(), high.encode())
        return self._note_pair_seed(low, high, hkdf(key, self.round.context, context))

    # Folders

    def _search_folder(self, member: str, folder: Folder) -> None:
        """Try every run of bytes that a member stored as each secret that it may be: a share, a seed, a key of a pair."""
        if member in self.places:
            for share, dealer in itertools.product(folder.windows(SHARE_BYTES), self.round.uploads):
                for index in range(1 + len(self.neighbours[dealer])):
                    self._note_share(dealer, member, index, share)
        for window in folder.windows(32):
            self._note_self_seed(member, window)
            keys = {self._ratcheted(window, start) for start in range(self.round.opening.sequence + 1)}
            for other in self.manifest.members:
                if other != member:
                    self._try_keys(*ordered(member, other), window, keys)

    def _try_keys(self, low: str, high: str, seed: bytes, keys: Iterable[bytes]) -> None:
        if high in self.neighbours[low]:
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
        place = self.places[decryptor]
        row = pieces(self.round.uploads[dealer].share_rows[place], COMMITMENT_BYTES)
        names = dealer.encode(), decryptor.encode(), index.to_bytes(4, "little")
        made = self.recording.hashed("commit-share", self.round.context, *names, share)
        if made[:COMMITMENT_BYTES] == row[index]:
            self.shares.setdefault((dealer, index), {})[place + 1] = share

    def _read_reveal(self, reveal: Any) -> None:
        staying = [each for each in self.round.survivors if each not in reveal.evicted]
        held = [dealer for dealer in staying if dealer in self.round.holders[reveal.member]]
        for dealer, run in zip(held, reveal.runs, strict=True):
            gone = [1 + i for i, each in enumerate(self.neighbours[dealer]) if each not in staying]
            for index, share in zip([0, *gone], pieces(run, SHARE_BYTES), strict=True):
                self._note_share(dealer, reveal.member, index, share)

    def _rebuild(self) -> None:
        for (dealer, index), shares in self.shares.items():
            if len(shares) < self.manifest.t:
                continue
            secret = recover(dict(itertools.islice(shares.items(), self.manifest.t)))
            if secret is None:
                continue
            if index:
                self._note_pair_seed(*ordered(dealer, self.neighbours[dealer][index - 1]), secret)
            else:
                self._note_self_seed(dealer, secret)

    def _note_self_seed(self, member: str, seed: bytes) -> None:
        """Note b_u if it is the one committed to."""
        uploaded = member in self.round.uploads
        if uploaded and self._commitment(member, 0, "commit-self", member.encode(), seed):
            self.self_seeds[member] = seed

    def _note_pair_seed(self, low: str, high: str, seed: bytes) -> bool:
        """Note r_uv if one of the pair committed to it; return whether it did."""
        names = low.encode(), high.encode(), seed
        for one, other in ((low, high), (high, low)):
            index = 1 + self.neighbours[one].index(other)
            if one in self.round.uploads and self._commitment(one, index, "commit-edge", *names):
                self.pair_seeds[low, high] = seed
                return True
        return False

    def _commitment(self, member: str, index: int, tag: str, *fields: bytes) -> bool:
        made = self.recording.hashed(tag, self.round.context, *fields)[:COMMITMENT_BYTES]
        return bool(made == self.round.uploads[member].commitments[index])

    # Vectors (wire: Uploads)

    def groups(self) -> list[tuple[str, ...]]:
        """Return the smallest sets of members that sent whole vectors and whose masks are known, but for those among the set.

        The sum of such a set is open to the recorder. A set of one is an opened vector.
        """
        sent = [member for member in self.manifest.members if self.round.masked(member) is not None]
        groups, left = list[tuple[str, ...]](), {*sent}
        while left:
            group, reached = set[str](), {min(left)}
            while reached:
                member = reached.pop()
                group.add(member)
                unknown = {v for v in self.neighbours[member] if ordered(member, v) not in self.pair_seeds}
                reached |= unknown - group
            left -= group
            if group <= {*sent} and group <= {*self.self_seeds}:
                groups.append(tuple(sorted(group)))
        return groups

    def unmask(self, group: Iterable[str]) -> list[int]:
        """Take the known masks off the sum of a group's masked vectors."""
        bits, members = self.round.bits, tuple(group)
        modulus = 2**bits
        masked = [self.round.masked(member) or [] for member in members]
        total = [sum(column) for column in zip(*masked, strict=True)]
        for member in members:
            seeds = [(-1, self.self_seeds[member])]
            outside = (v for v in self.neighbours[member] if v not in members)
            seeds += [(-1 if member < v else 1, self.pair_seeds[ordered(member, v)]) for v in outside]
            for sign, seed in seeds:
                mask = keystream(seed, bits, len(total))
                total = [value + sign * word for value, word in zip(total, mask, strict=True)]
        return [value % modulus for value in total]


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
    return *KEY_SETS[recorded["version"]], *recorded.get("folders", {})


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
        plain = recorded["vectors"][of.context.hex()]
        groups = opener.groups()
        for group in groups:
            summed = [
                sum(column) % 2**of.bits for column in zip(*(plain[member] for member in group), strict=True)
            ]
            if opener.unmask(group) != summed:
                raise ValueError(f"the sum of {', '.join(group)} was opened, and isn't theirs")
        boxes = {
            dealer: (
                sum(pair in opener.opened_boxes for pair in opener.boxes if pair[0] == dealer),
                sum(pair[0] == dealer for pair in opener.boxes),
            )
            for dealer in of.uploads
        }
        sent = tuple(member for member in of.manifest.members if of.masked(member) is not None)
        found = (of.context, of.opening.terms.step, sent, tuple(of.survivors), boxes, tuple(groups))
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
    write(f"protocol version {recorded['version']}, {len(recorded['keys'])} members\n")
    for line in table(
        {chosen: open_recording(recorded, chosen) for chosen in ([given.keys] if given.keys else sets)}
    ):
        write(line)


if __name__ == "__main__":
    main()
