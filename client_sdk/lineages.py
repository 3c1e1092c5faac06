"""A member's own ledger: which records it has used under which name, and in which rounds (protocol §8).

    lineages/index          names, families, versions, and the contexts that each version was uploaded to
    lineages/LINEAGE-VER    8 bytes a record, sorted: keyed hashes that mean nothing without the member's key
    lineages/charged/CTX    a noisy attempt that was charged and whose end was not heard of

A version that was uploaded counts as opened until a certificate says VOID: nobody else can tell the sums apart.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from calibration.errors import BudgetSpent
from calibration.privacy import Budget, Charge
from client_sdk.errors import LineageError
from client_sdk.files import make_private, read_sealed, remove_durably, whole, write_sealed
from client_sdk.offer import Offer
from client_sdk.policy import Policy, refused
from protocol.attempt import Attempt
from protocol.messages import Family

Hashes: TypeAlias = npt.NDArray[np.uint64]

_NAME_SHOWN = 64
_CHARGED = "charged"


@dataclass(frozen=True)
class Version:
    """A data set with exactly these records.

    Attributes:
        tag: ver_u, 8 bytes.
        contexts: of the attempts that it was uploaded to and that did not end VOID.
    """

    tag: bytes
    contexts: tuple[bytes, ...]


@dataclass(frozen=True)
class Lineage:
    """A data set under one name.

    Attributes:
        name: the member's own; nobody else sees it.
        tag: lin_u, 8 bytes.
        family: exact or noisy, for life; indicator where it was only counted, and from then on never noisy.
        versions: oldest first.
        charges: what its noisy rounds have cost: context and μ of each attempt that it was uploaded to and that did not end VOID.
    """

    name: str
    tag: bytes
    family: str
    versions: tuple[Version, ...]
    charges: tuple[tuple[bytes, float], ...] = ()

    def budget(self, policy: Policy) -> Budget:
        """What of this member's privacy budget is spent."""
        charges = tuple(Charge(context, mu) for context, mu in self.charges)
        return Budget(self.name[:_NAME_SHOWN], policy.mu_budget, policy.delta, charges)


class Lineages:
    """The ledger on disk; one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> tuple[Lineage, ...]:
        """Every lineage that may stand in an opened round."""
        path = self._folder / "index"
        if not path.exists():
            return ()
        return read_sealed(path, _lineages)

    def check(
        self,
        offer: Offer,
        family: str,
        context: bytes,
        policy: Policy,
        *,
        charged: float = 0.0,
    ) -> None:
        """Refuse records that do not go with their name, in this order.

        1. a lineage is exact or noisy for life, and a count of members goes with exact sums alone; 2. a record belongs to one
        lineage; 3. of exact sums, a version differs from each one that was used before in at least `policy.changed_records_min`
        records, or in none; 4. a noisy round leaves the lineage's privacy budget at `policy.mu_budget` or below.

        Args:
            offer: the records and their name.
            family: of the round.
            context: of the attempt; what was begun for it before does not count.
            policy: sets the least number of changed records.
            charged: μ of the round's noise; 0 for an exact one.

        Raises:
            LineageError: one of the first two, or the fourth, naming the lineages.
            PeerFault: policy-refused for the third.
        """
        for lineage in self._without(context):
            if lineage.tag != offer.lineage:
                self._check_apart(offer, lineage)
                continue
            _check_family(lineage, offer.name, family)
            for version in lineage.versions if family != Family.NOISY else ():
                changed = changed_records(offer.hashes, self._hashes(lineage, version))
                if version.tag != offer.records and changed < policy.changed_records_min:
                    raise refused(
                        "changed_records_min",
                        f"at least {policy.changed_records_min} records to change before lineage {offer.name!r} is used "
                        "again, since two sums show the sum of what changed between them",
                        f"{changed} changed",
                        by="the statistics",
                    )
        known = (lineage for lineage in self._without(context) if lineage.tag == offer.lineage)
        _check_budget(next(known, Lineage(offer.name, offer.lineage, family, ())), context, charged, policy)

    def _check_apart(self, offer: Offer, other: Lineage) -> None:
        for version in other.versions:
            shared = np.intersect1d(offer.hashes, self._hashes(other, version)).size
            if shared:
                raise LineageError(
                    f"{shared} of the records offered as lineage {offer.name!r} were used as lineage {other.name!r} before: "
                    "a record belongs to one lineage; leave them out, or use that name"
                )

    def charge(self, name: str, tag: bytes, context: bytes, mu: float, policy: Policy) -> None:
        """Charge a noisy attempt to a lineage before its records are looked at: whatever they make fail then has been paid for.

        Raises:
            LineageError: the lineage was used in other rounds, or its budget would not hold it; it is not charged then.
        """
        lineages = self.all()
        known = next((each for each in lineages if each.tag == tag), None)
        lineage = known or Lineage(name, tag, Family.NOISY, ())
        _check_family(lineage, name, Family.NOISY)
        _check_budget(lineage, context, mu, policy)
        if context not in dict(lineage.charges):
            lineage = replace(lineage, charges=(*lineage.charges, (context, mu)))
            make_private(self._folder)
            self._write([each for each in lineages if each is not known] + [lineage])

    def await_end(self, attempt: Attempt) -> None:
        """Remember an attempt that is to be charged: only its certificate can show that it ended VOID, whether or not anything was uploaded."""
        make_private(self._folder)
        path = make_private(self._folder / _CHARGED) / attempt.context.hex()
        if not path.exists():
            write_sealed(path, attempt.encode_fields())

    def awaited(self) -> tuple[Attempt, ...]:
        """The attempts that were charged, and whose end was not `heard` of."""
        paths = sorted((self._folder / _CHARGED).glob("[!.]*"))
        return tuple(read_sealed(path, whole(Attempt.decode_fields)) for path in paths)

    def heard(self, context: bytes) -> None:
        """Await an attempt's end no longer: it has ended, with a sum or without."""
        path = self._folder / _CHARGED / context.hex()
        if path.exists():
            remove_durably(path)

    def use(self, offer: Offer, family: str, context: bytes, *, charged: float = 0.0) -> None:
        """Remember, durably and before anything of it leaves, that these records go into an attempt, and what it costs."""
        lineages = self._without(context)
        known = next((each for each in lineages if each.tag == offer.lineage), None)
        lineage = known or Lineage(offer.name, offer.lineage, family, ())
        if lineage.family == Family.INDICATOR or not lineage.versions:
            lineage = replace(lineage, family=family)
        version = next((v for v in lineage.versions if v.tag == offer.records), Version(offer.records, ()))
        versions = [each for each in lineage.versions if each.tag != offer.records]
        versions.append(replace(version, contexts=(*version.contexts, context)))
        if charged:
            lineage = replace(lineage, charges=(*lineage.charges, (context, charged)))
        make_private(self._folder)
        write_sealed(self._path(lineage, version), offer.hashes.astype("<u8").tobytes())
        self._write([e for e in lineages if e is not known] + [replace(lineage, versions=tuple(versions))])

    def release(self, context: bytes) -> None:
        """An attempt ended VOID: what was uploaded to it was not opened."""
        before = self.all()
        after = self._without(context)
        if after == before:
            return
        self._write(after)
        kept = {self._path(lineage, version) for lineage in after for version in lineage.versions}
        for path in self._folder.glob("*-*"):
            if path not in kept:
                remove_durably(path)

    def _without(self, context: bytes) -> tuple[Lineage, ...]:
        lineages = []
        for lineage in self.all():
            versions = tuple(
                replace(version, contexts=left)
                for version in lineage.versions
                if (left := tuple(each for each in version.contexts if each != context))
            )
            charges = tuple(charge for charge in lineage.charges if charge[0] != context)
            if versions or charges:
                lineages.append(replace(lineage, versions=versions, charges=charges))
        return tuple(lineages)

    def _write(self, lineages: Iterable[Lineage]) -> None:
        entries = [
            {
                "name": lineage.name,
                "tag": lineage.tag.hex(),
                "family": lineage.family,
                "charges": {context.hex(): mu for context, mu in lineage.charges},
                "versions": {
                    v.tag.hex(): [context.hex() for context in v.contexts] for v in lineage.versions
                },
            }
            for lineage in lineages
        ]
        write_sealed(self._folder / "index", json.dumps(entries).encode())

    def _hashes(self, lineage: Lineage, version: Version) -> Hashes:
        return read_sealed(self._path(lineage, version), _hashes_in)

    def _path(self, lineage: Lineage, version: Version) -> Path:
        return self._folder / f"{lineage.tag.hex()}-{version.tag.hex()}"


def _hashes_in(content: bytes) -> Hashes:
    return np.frombuffer(content, "<u8")


def _lineages(content: bytes) -> tuple[Lineage, ...]:
    return tuple(
        Lineage(
            entry["name"],
            bytes.fromhex(entry["tag"]),
            entry["family"],
            tuple(
                Version(bytes.fromhex(tag), tuple(map(bytes.fromhex, contexts)))
                for tag, contexts in entry["versions"].items()
            ),
            tuple((bytes.fromhex(context), float(mu)) for context, mu in entry.get("charges", {}).items()),
        )
        for entry in json.loads(content)
    )


def _check_family(lineage: Lineage, name: str, family: str) -> None:
    if lineage.versions and lineage.family != family and Family.NOISY in {family, lineage.family}:
        raise LineageError(
            f"lineage {name!r} was used in {lineage.family} rounds, and this one is {family}: a lineage is "
            "noisy for life or never, and so are its records"
        )


def _check_budget(lineage: Lineage, context: bytes, charged: float, policy: Policy) -> None:
    if not charged:
        return
    try:
        lineage.budget(policy).charge(context, charged)
    except BudgetSpent as error:
        raise LineageError(
            f"privacy budget: {error}. Begin a lineage of new records, or raise mu_budget in the policy if these people's "
            "records may say that much more"
        ) from error


def changed_records(one: Hashes, other: Hashes) -> int:
    """How many records stand in one of two sets and not in the other, repeats counted."""
    values, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    signs = np.concatenate([np.ones(len(one)), -np.ones(len(other))])
    return int(np.abs(np.bincount(places, signs, len(values))).sum())
