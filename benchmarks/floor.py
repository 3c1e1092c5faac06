"""The floor: the cost of a round's primitive operations without a protocol around them.

Real X25519, ML-KEM-768, HKDF, Shamir, AES-GCM, Ed25519 and AES-256 in counter mode run as often as a round with fresh keys needs
them, in the fastest form found with numpy and `cryptography`. Nothing is parsed, framed, stored, sent or
ordered. A protocol with the same ring, graph and
key agreement in every round can approach these figures, but not beat them.

A client makes an X25519 key and an ML-KEM key and signs them; for each neighbour it verifies a signature, agrees on an X25519 secret,
encapsulates (to half of them) or decapsulates, derives two keys, seals and opens one box with a share of both its secrets; then it
quantises its vector and adds its own mask and one for each neighbour. The server adds up the survivors' vectors, recovers one secret a
member, and subtracts the survivors' own masks and the masks between dropped members and their neighbours. It decapsulates for each of
these: to encapsulate again, from a dropped client's seed, would take a fifth longer, and `cryptography` takes no seed.

    .venv/bin/python -m benchmarks.floor --members 100 --bits 32 --lost 0.1
"""

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ELEMENTS = 947_940  # V's triangle at l=1280, U at 100 classes, the counts

Ring = npt.NDArray[np.unsignedinteger[Any]]
Field = npt.NDArray[np.int64]

# --- Masks: AES-256 keystream, added in place ----------------------------------------------------------

BLOCK_BYTES = 256 << 10  # keystream and sum of one block stay in L2; the fastest of 8 KiB to 512 KiB
_ZEROS = memoryview(bytes(BLOCK_BYTES))

Mode = modes.CTR | modes.GCM
# The fastest keystream of `cryptography` on a machine with VAES: 20 GB/s including the tag, compared with 8 for CTR,
# which OpenSSL computes 128 bits at a time.
MODES: dict[str, Mode] = {"gcm": modes.GCM(bytes(12)), "ctr": modes.CTR(bytes(16))}


def keystream(seed: bytes, mode: Mode) -> Callable[[memoryview, memoryview], int]:
    """Return the function that writes the next part of a seed's keystream to its second argument."""
    return Cipher(algorithms.AES(seed), mode).encryptor().update_into


def add_masks(total: Ring, added: Iterable[bytes], taken: Iterable[bytes], mode: Mode) -> None:
    """Add and subtract the seeds' masks block by block: one pass over `total`, however many masks there are."""
    streams = [(keystream(seed, mode), np.add) for seed in added] + [
        (keystream(seed, mode), np.subtract) for seed in taken
    ]
    buffer = memoryview(bytearray(BLOCK_BYTES + 15))  # update_into needs one more block, less a byte
    mask = np.frombuffer(buffer, total.dtype, BLOCK_BYTES // total.itemsize)
    for start in range(0, total.size, mask.size):
        block = total[start : start + mask.size]
        fresh = mask[: block.size]
        zeros = _ZEROS[: block.nbytes]
        for fill, combine in streams:
            fill(zeros, buffer)
            combine(block, fresh, block)


def quantise(vector: npt.NDArray[np.float64], scale: float, ring: Ring) -> None:
    """Round scale·vector to the nearest integer of the ring, a block at a time."""
    signed = ring.view(np.int32 if ring.itemsize == 4 else np.int64)
    scaled = np.empty(BLOCK_BYTES // 8)
    for start in range(0, vector.size, scaled.size):
        stretch = slice(start, start + scaled.size)
        block = scaled[: vector[stretch].size]
        np.multiply(vector[stretch], scale, out=block)
        np.rint(block, out=block)
        np.copyto(signed[stretch], block, casting="unsafe")


# --- Shamir over the integers mod 2³¹ − 1: a 256-bit secret is nine limbs of 30 bits ---------------------

PRIME = 2**31 - 1
LIMBS = 9
SHARE_BYTES = 4 * LIMBS


def product(left: Field, right: Field) -> Field:
    """Return left @ right mod PRIME, exactly: in float64, 31 bits times 11 bits times up to 2,048 terms fit in 53 bits."""
    result = np.zeros((left.shape[0], right.shape[1]), np.int64)
    for shift in (22, 11, 0):
        part = (right >> shift & 0x7FF).astype(np.float64)
        result = ((result << 11) + (left.astype(np.float64) @ part).astype(np.int64)) % PRIME
    return result


def random_field(rows: int, columns: int) -> Field:
    """Draw uniform numbers below PRIME from the operating system."""
    while True:
        drawn = np.frombuffer(os.urandom(4 * rows * columns), np.uint32).reshape(rows, columns) & 0x7FFFFFFF
        if drawn.max(initial=0) < PRIME:  # otherwise, once in 2³¹ numbers, draw again
            return drawn.astype(np.int64)


def powers(points: int, threshold: int) -> Field:
    """Return x⁰ … x^(threshold−1) for x = 1 … points, which are public and the same in every round."""
    rows = np.ones((points, threshold), np.int64)
    for column in range(1, threshold):
        rows[:, column] = rows[:, column - 1] * np.arange(1, points + 1) % PRIME
    return rows


def to_limbs(secrets: list[bytes]) -> Field:
    numbers = [int.from_bytes(secret, "little") for secret in secrets]
    return np.array([[number >> 30 * limb & 0x3FFFFFFF for number in numbers for limb in range(LIMBS)]])


def from_limbs(limbs: Field) -> list[bytes]:
    rows = limbs.reshape(-1, LIMBS).tolist()
    return [sum(limb << 30 * place for place, limb in enumerate(row)).to_bytes(32, "little") for row in rows]


def deal(secrets: list[bytes], vandermonde: Field) -> Field:
    """Return shares of the secrets, (points, len(secrets)·LIMBS)."""
    coefficients = random_field(vandermonde.shape[1], len(secrets) * LIMBS)
    coefficients[0] = to_limbs(secrets)
    return product(vandermonde, coefficients)


def weights_at_zero(points: Field) -> Field:
    """Return Lagrange's weights for the value at 0, for each row of distinct points."""
    above, below = np.ones_like(points), np.ones_like(points)
    for turn in range(1, points.shape[1]):
        other = np.roll(points, turn, axis=1)
        above = above * other % PRIME
        below = below * (other - points) % PRIME
    inverse = np.ones_like(points)
    for bit in f"{PRIME - 2:b}":  # Fermat
        inverse = inverse * inverse % PRIME
        if bit == "1":
            inverse = inverse * below % PRIME
    return above * inverse % PRIME


# --- One round's operations ------------------------------------------------------------------------------


class Keys:
    """A client's private keys, from the secret that it shares so that the server can replace it."""

    def __init__(self, secret: bytes) -> None:
        self.x25519 = X25519PrivateKey.from_private_bytes(derive(secret, b"x25519"))
        self.mlkem = MLKEM768PrivateKey.from_seed_bytes(derive(secret, b"mlkem", 64))

    def public(self) -> bytes:
        """Return the X25519 key (32 bytes) and the ML-KEM key (1,184 bytes)."""
        return self.x25519.public_key().public_bytes_raw() + self.mlkem.public_key().public_bytes_raw()


class Neighbour:
    """Another client: its identity and its signed public keys."""

    def __init__(self) -> None:
        identity = Ed25519PrivateKey.generate()
        self.identity = identity.public_key()
        self.public = Keys(os.urandom(32)).public()
        self.signature = identity.sign(self.public)


def derive(secret: bytes, info: bytes, length: int = 32) -> bytes:
    return HKDF(hashes.SHA256(), length, None, info).derive(secret)


def agree(keys: Keys, public: bytes, ciphertext: bytes | None) -> bytes:
    """Return a pair's two secrets: one of X25519, and one decapsulated from `ciphertext`, or freshly encapsulated if there is none."""
    x25519 = keys.x25519.exchange(X25519PublicKey.from_public_bytes(public[:32]))
    if ciphertext is None:
        return x25519 + MLKEM768PublicKey.from_public_bytes(public[32:]).encapsulate()[0]
    return x25519 + keys.mlkem.decapsulate(ciphertext)


def agree_and_deal(
    keys: Keys,
    secret: bytes,
    neighbours: list[Neighbour],
    ciphertexts: list[bytes | None],
    vandermonde: Field,
) -> list[bytes]:
    """Do a client's work between its keys and its vector; return its own seed and one for each neighbour."""
    seeds = [os.urandom(32)]
    shares = deal([seeds[0], secret], vandermonde).astype(np.uint32)
    for neighbour, ciphertext, share in zip(neighbours, ciphertexts, shares[1:], strict=True):
        neighbour.identity.verify(neighbour.signature, neighbour.public)
        shared = agree(keys, neighbour.public, ciphertext)
        seeds.append(derive(shared, b"mask"))
        box = AESGCM(derive(shared, b"box"))
        # The neighbour's box to this client costs as much to open as this one.
        box.decrypt(bytes(12), box.encrypt(bytes(12), share.tobytes(), None), None)
    return seeds


def recover(shares: Field, points: Field) -> list[bytes]:
    """Recover one secret of each member from shares (members, threshold, LIMBS) at points (members or 1, threshold)."""
    weighted = weights_at_zero(points)[:, :, None] * shares % PRIME
    return from_limbs(weighted.sum(axis=1) % PRIME)


def measure_client(
    neighbours: list[Neighbour],
    vector: npt.NDArray[np.float64],
    scale: float,
    plain: Ring,
    vandermonde: Field,
    mode: Mode,
) -> dict[str, float]:
    identity, secret = Ed25519PrivateKey.generate(), os.urandom(32)
    started_s = time.process_time()
    keys = Keys(secret)
    identity.sign(keys.public())
    made_s = time.process_time()

    # Untimed: half of the neighbours encapsulate to this client.
    mlkem_key = keys.mlkem.public_key()
    ciphertexts = [mlkem_key.encapsulate()[1] if place % 2 else None for place in range(len(neighbours))]

    resumed_s = time.process_time()
    seeds = agree_and_deal(keys, secret, neighbours, ciphertexts, vandermonde)
    agreed_s = time.process_time()
    upload = np.empty_like(plain)
    quantise(vector, scale, upload)
    add_masks(upload, seeds[::2], seeds[1::2], mode)
    masked_s = time.process_time()

    add_masks(upload, seeds[1::2], seeds[::2], mode)
    assert np.array_equal(upload, plain)
    return {"agree": made_s - started_s + agreed_s - resumed_s, "mask": masked_s - agreed_s}


def measure_server(
    plain: Ring,
    lost: int,
    survivors: int,
    partners: list[Neighbour],
    vandermonde: Field,
    mode: Mode,
    *,
    sparse: bool,
) -> dict[str, float]:
    """Measure the server. `partners` are the surviving neighbours of each dropped client."""
    members = survivors + lost
    threshold = vandermonde.shape[1]
    own_seeds = [os.urandom(32) for _ in range(survivors)]
    lost_secrets = [os.urandom(32) for _ in range(lost)]
    secrets = own_seeds + lost_secrets
    shares = deal(secrets, vandermonde)[-threshold:].reshape(threshold, members, LIMBS).swapaxes(0, 1)
    last = np.arange(len(vandermonde) - threshold + 1, len(vandermonde) + 1)
    # On a sparse graph every member's shares are with other neighbours, so each member needs its own weights.
    points = np.tile(last, (members if sparse else 1, 1))

    started_s = time.process_time()
    total = np.zeros_like(plain)
    for _ in range(survivors):
        np.add(total, plain, out=total)
    summed_s = time.process_time()

    # Untimed: add the masks that the uploads would have.
    ciphertexts, pair_seeds = [], []
    for keys, partner in itertools.product(map(Keys, lost_secrets), partners):
        ciphertexts.append(keys.mlkem.public_key().encapsulate()[1])
        pair_seeds.append(derive(agree(keys, partner.public, ciphertexts[-1]), b"mask"))
    add_masks(total, own_seeds + pair_seeds[::2], pair_seeds[1::2], mode)

    resumed_s = time.process_time()
    recovered = recover(shares, points)
    recovered_s = time.process_time()
    seeds, shown = [], iter(ciphertexts)
    for secret in recovered[survivors:]:
        keys = Keys(secret)
        seeds += [derive(agree(keys, partner.public, next(shown)), b"mask") for partner in partners]
    add_masks(total, seeds[1::2], recovered[:survivors] + seeds[::2], mode)
    unmasked_s = time.process_time()

    assert recovered == secrets
    assert np.array_equal(total, plain * plain.dtype.type(survivors))
    return {
        "sum": summed_s - started_s,
        "recover": recovered_s - resumed_s,
        "unmask": unmasked_s - recovered_s,
    }


def floor(
    members: int,
    bits: int,
    lost: int,
    elements: int = ELEMENTS,
    repeats: int = 5,
    *,
    neighbours: int | None = None,
    threshold: int | None = None,
    aes: str = "gcm",
) -> dict[str, Any]:
    """Measure CPU seconds and bytes of one round's primitive operations, as medians over `repeats`.

    Args:
        members: clients that share keys.
        bits: of the ring, 32 or 64: the size of a masked element.
        lost: number of members that vanish before their upload.
        elements: length of the vector.
        repeats: measurements, after a discarded first one.
        neighbours: number of clients with which each client shares masks and secrets; None for all, the complete graph.
        threshold: shares that recover a secret; None for the smallest majority of neighbours + 1.
        aes: cipher mode of the keystream, a key of `MODES`.

    Returns:
        `client_cpu_s`, `client_stage_cpu_s`, `client_upload_bytes`, `server_cpu_s`, `server_stage_cpu_s` and
        their parameters.

    Raises:
        ValueError: if no round has these parameters.
    """
    neighbours = members - 1 if neighbours is None else neighbours
    shares = neighbours + 1
    threshold = shares // 2 + 1 if threshold is None else threshold
    survivors = members - lost
    if bits not in {32, 64} or not 2 <= shares <= members or not 1 <= threshold <= min(shares, 2048):
        raise ValueError(f"no round has {members=}, {bits=}, {neighbours=}, {threshold=}")
    if not 0 <= lost <= members - threshold or elements < 1 or repeats < 1:
        raise ValueError(f"no round has {lost=} of {members=} with {threshold=}, {elements=}, {repeats=}")

    scale = 2.0**15 if bits == 32 else 2.0**31
    vector = np.random.default_rng(0).uniform(-1, 1, elements)
    whole = np.rint(vector * scale).astype(np.int64)
    plain: Ring = whole.astype(np.uint32) if bits == 32 else whole.astype(np.uint64)
    vandermonde = powers(shares, threshold)
    others = [Neighbour() for _ in range(neighbours)]
    partners = others[: round(neighbours * survivors / (members - 1))]
    sparse = shares < members

    client, server = [], []
    for _ in range(repeats + 1):
        client.append(measure_client(others, vector, scale, plain, vandermonde, MODES[aes]))
        server.append(
            measure_server(plain, lost, survivors, partners, vandermonde, MODES[aes], sparse=sparse)
        )
    del client[0], server[0]
    keys_bytes = 32 + 1184 + 64 + neighbours // 2 * 1088
    boxes_bytes = neighbours * (2 * SHARE_BYTES + 16)
    return {
        "system": "floor",
        "graph": "sparse" if sparse else "complete",
        "members": members,
        "shares": shares,
        "threshold": threshold,
        "lost": lost,
        "elements": elements,
        "repeats": repeats,
        "bits": bits,
        "aes": aes,
        "client_cpu_s": statistics.median(sum(stages.values()) for stages in client),
        "client_stage_cpu_s": {
            name: statistics.median(stages[name] for stages in client) for name in client[0]
        },
        "client_upload_bytes": keys_bytes + boxes_bytes + elements * bits // 8 + shares * SHARE_BYTES,
        "server_cpu_s": statistics.median(sum(stages.values()) for stages in server),
        "server_stage_cpu_s": {
            name: statistics.median(stages[name] for stages in server) for name in server[0]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--members", type=int, default=10, metavar="N")
    parser.add_argument("--shares", default="complete", metavar="K", help="'complete' or a number up to N")
    parser.add_argument(
        "--threshold", type=int, metavar="t", help="default: the smallest majority of the shares"
    )
    parser.add_argument("--bits", type=int, default=32, choices=(32, 64), help="of the ring")
    parser.add_argument("--lost", type=float, default=0.0, metavar="FRACTION", help="of the members, rounded")
    parser.add_argument("--repeats", type=int, default=5, metavar="R")
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--aes", default="gcm", choices=tuple(MODES), help="which mode makes keystreams")
    given = parser.parse_args()
    try:
        figures = floor(
            given.members,
            given.bits,
            round(given.lost * given.members),
            given.elements,
            given.repeats,
            neighbours=None if given.shares == "complete" else int(given.shares) - 1,
            threshold=given.threshold,
            aes=given.aes,
        )
    except ValueError as error:
        parser.error(str(error))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
