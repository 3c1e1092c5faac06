"""The signers of messages in a simulated round, and new signatures for what a cheat has changed."""

from dataclasses import replace
from typing import Any

from assurance.fuzz.mutator import parts
from veilsum.protocol.codec import Headed, Many, Struct
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import ShownCiphertext, Upload
from veilsum.protocol.sealing import commitment_tree


def signed(part: Struct) -> bool:
    """Return whether the struct carries its own signature. A ciphertext that is shown carries that of its sender's pairing."""
    return not isinstance(part, ShownCiphertext) and any(
        name == "signature" for name, _ in part.codecs.items()
    )


def keys_in(owner: object) -> dict[str, SigningKey]:
    """Return every signing key that an object has, by attribute or by id."""
    found: dict[str, SigningKey] = {}
    for name, held in vars(owner).items():
        if isinstance(held, SigningKey):
            found[name] = held
        elif isinstance(held, dict):
            found |= {str(who): key for who, key in held.items() if isinstance(key, SigningKey)}
    return found


class Signers:
    """All keys of a simulation. Ed25519 is deterministic, so a signature can be checked by signing again."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._makers: dict[type[Struct], SigningKey] = {}
        self._genuine: dict[Struct, bool] = {}
        self._shown: set[ShownCiphertext] = set()

    def learn(self, message: Struct) -> None:
        """Record which key signs this message type, and that the signatures in it are genuine."""
        for part in parts(message):
            if signed(part):
                self.genuine(part)
            elif isinstance(part, ShownCiphertext):
                self._shown.add(part)

    def sent(self, part: ShownCiphertext) -> bool:
        """Return whether a sender's pairing holds this ciphertext, with this path and signature."""
        return part in self._shown

    def genuine(self, part: Struct) -> bool:
        """Return whether one of the keys made the struct's signature."""
        known = self._genuine.get(part)
        if known is None:
            known = any(self._made(key, part) == part for key in self._candidates(part))
            if len(self._genuine) < 4096:
                self._genuine[part] = known
        return known

    def resign(self, value: Headed, original: Headed) -> Headed | None:
        """Sign every changed part again with the right key; return None if nothing was signed."""
        kept = set(parts(original))
        remade = self._resigned(value, kept)
        return remade if remade != value else None  # type: ignore[return-value]  # a Headed stays one

    def _resigned(self, value: Struct, kept: set[Struct]) -> Struct:
        if value in kept:
            return value
        changes: dict[str, Any] = {}
        for name, codec in value.codecs.items():
            held = getattr(value, name)
            if isinstance(codec, type):
                changes[name] = self._resigned(held, kept)
            elif isinstance(codec, Many) and isinstance(codec.item, type):
                changes[name] = tuple(self._resigned(item, kept) for item in held)
        value = replace(value, **changes)  # type: ignore[type-var]  # every subclass is a dataclass
        if isinstance(value, Upload):
            return self._with_roots(value)
        key = next(iter(self._candidates(value)), None) if signed(value) else None
        return (key and self._made(key, value)) or value

    def _with_roots(self, upload: Upload) -> Upload:
        """Recompute the roots that the header signs, so that a cheat's announcement is consistent."""
        if not (upload.chunk_digests and upload.boxes):
            return upload
        roots: dict[str, Any] = {
            "chunk_root": Tree(upload.chunk_digests).root,
            "box_root": Tree(upload.boxes).root,
            "commitment_root": commitment_tree(upload.secret_commitments, upload.share_rows).root,
        }
        header: Any = self._resigned(replace(upload.header, **roots), set())
        return replace(upload, header=header)

    def _candidates(self, part: Struct) -> list[SigningKey]:
        keys = keys_in(self._owner)
        own = keys.get(getattr(part, "member", ""))
        if own is not None:
            return [own]
        if type(part) not in self._makers:
            maker = next((key for key in keys.values() if self._made(key, part) == part), None)
            if maker is None:
                return list(keys.values())
            self._makers[type(part)] = maker
        return [self._makers[type(part)]]

    @staticmethod
    def _made(key: SigningKey, part: Struct) -> Struct | None:
        values = {name: getattr(part, name) for name, _ in part.codecs.items() if name != "signature"}
        try:
            remade: Struct = type(part).make_signed(key, **values)  # type: ignore[attr-defined]  # whatever is signed is made
        except Misuse:  # no encoder writes it, so no verifier receives it
            return None
        return remade
