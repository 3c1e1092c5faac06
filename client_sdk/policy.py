"""A member's own limits. A policy refuses; it never changes a value."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from client_sdk.errors import Misuse, PeerFault
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Manifest, Roster
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.study import END_MAX_S, Content, study_fault
from veilsum.study.promise import study_mu


@dataclass(frozen=True)
class Policy:
    """A member's own limits.

    Attributes:
        admin_key: the admin's Ed25519 public key, as 32 bytes or hexadecimal; it pins the federation. Get it from the
            admin, not from the coordinator.
        approved: approval digests of the studies to take part in, as 32 bytes or hexadecimal; `veilsum member join` shows them.
        mu_budget: the most μ (Gaussian differential privacy) that all noisy studies together may spend on one record, √Σμ².
        epsilon_max: the most ε of a study; a limit refuses exact studies too. None for no limit.
        members_min: the fewest members in a cohort.
        decryptor_colluders_min: the fewest colluding decryptors that a cohort must withstand. If the admin nominates decryptors,
            a cohort withstands about a third of them, which may be far below the study's `a`; one more can read any member.
        lifetime_max_s: the longest time from opening to an attempt's latest end, in seconds.
        reports_site: whether the operator of a rehearsal is told this site's release, clock, free disk space, upload time, and how its
            canaries compare.

    Raises:
        Misuse: a key or digest is malformed, or a limit is out of its domain.
    """

    admin_key: bytes | str
    approved: Collection[bytes | str] = frozenset()
    mu_budget: float = 2.0
    epsilon_max: float | None = None
    members_min: int = 3
    decryptor_colluders_min: int = 0
    lifetime_max_s: float = END_MAX_S
    reports_site: bool = True

    def __post_init__(self) -> None:
        # Frozen: fields are set only while it is being made.
        object.__setattr__(self, "admin_key", bytes_of(self.admin_key, "admin_key"))
        if isinstance(self.approved, str | bytes) or not isinstance(self.approved, Collection):
            raise Misuse(
                f"approved: got {type(self.approved).__name__}, expected a set of digests: approved={{…}}"
            )
        object.__setattr__(self, "approved", frozenset(bytes_of(each, "approved") for each in self.approved))
        if self.members_min < 3 or self.decryptor_colluders_min < 0:
            raise Misuse(
                f"members_min: got {self.members_min}, expected at least 3; decryptor_colluders_min: got "
                f"{self.decryptor_colluders_min}, expected at least 0"
            )
        for name in ("lifetime_max_s", "mu_budget"):
            if not getattr(self, name) > 0:
                raise Misuse(f"{name}: got {getattr(self, name)}, expected a number above 0")
        if self.epsilon_max is not None and not 0 < self.epsilon_max < math.inf:
            raise Misuse(
                f"epsilon_max: got {self.epsilon_max}, expected a number above 0, or None for no limit"
            )

    @property
    def federation(self) -> bytes:
        """The federation's id, which is the pinned admin key, 32 bytes."""
        assert isinstance(self.admin_key, bytes)
        return self.admin_key

    def check_roster(self, roster: Roster) -> None:
        """Refuse a roster of another federation (wrong-federation) or without the admin's signature (bad-signature)."""
        roster.verify_admin(self.federation)

    def approves(self, content: Content) -> bool:
        return content.approval in self.approved

    def check_study(self, content: Content, kind: PeriodKind) -> None:
        """Refuse a study for its periods of a kind, in this order; a rehearsal has no noise to limit.

        1. it is approved (study-refused); 2. ε ≤ epsilon_max; 3. its μ fits the budget of a fresh record (policy-refused).
        """
        if not self.approves(content):
            given = ", ".join(sorted(bytes_of(each, "approved").hex() for each in self.approved))
            raise study_fault(
                f"this member has not approved study {content.notes.name}: read it, then approve {content.approval.hex()} "
                f"(approved: {given or 'none'})"
            )
        if kind is PeriodKind.REHEARSAL:
            return
        noise = content.question.judge if kind is PeriodKind.JUDGE else content.question.noise
        if self.epsilon_max is not None and (noise is None or noise.epsilon > self.epsilon_max):
            seen = "an exact study" if noise is None else f"ε = {noise.epsilon:g}"
            raise _policy_fault("epsilon_max", f"at most {self.epsilon_max:g}", seen)
        if noise is not None and study_mu(noise) > self.mu_budget:
            raise _policy_fault("mu_budget", f"at most μ = {self.mu_budget:g}", f"{study_mu(noise):g}")

    def check_manifest(self, manifest: Manifest) -> None:
        """Refuse a cohort: n ≥ members_min, then a_D ≥ decryptor_colluders_min (policy-refused)."""
        for name, wanted, seen in (
            ("members_min", self.members_min, len(manifest.members)),
            ("decryptor_colluders_min", self.decryptor_colluders_min, manifest.decryptor_colluders),
        ):
            if seen < wanted:
                raise _policy_fault(name, f"at least {wanted}", seen)

    def check_opening(self, attempt: Attempt, now_s: float) -> None:
        """Refuse an attempt for its study, its cohort, or the time to its latest end (policy-refused)."""
        self.check_study(attempt.content, attempt.spec.kind)
        self.check_manifest(attempt.manifest)
        ahead_s = attempt.terms.latest_end_s - now_s
        if ahead_s > self.lifetime_max_s:
            raise _policy_fault("lifetime_max_s", f"at most {self.lifetime_max_s:.0f} s", f"{ahead_s:.0f} s")


def bytes_of(value: bytes | str, field: str) -> bytes:
    """Return the 32 bytes of a key or digest, given as bytes or as 64 hexadecimal digits. Raises Misuse for anything else."""
    raw, got = b"", type(value).__name__
    if isinstance(value, bytes):
        raw, got = value, f"{len(value)} bytes"
    elif isinstance(value, str):
        got = "1 character" if len(value) == 1 else f"{len(value)} characters"
        try:
            raw = bytes.fromhex(value)
        except ValueError:
            got += ", some of them not hexadecimal digits" if re.search("[^0-9a-fA-F]", value) else ""
    if len(raw) != 32:
        raise Misuse(
            f"{field}: got {got}, expected 64 hexadecimal digits or 32 bytes{_FIELD_SOURCES.get(field, '')}"
        )
    return raw


_FIELD_SOURCES = {
    "admin_key": ". Ask the admin for the public key that `veilsum admin new` showed",
    "approved": ". `veilsum member join` shows each study's approval digest",
}


def check_admin(roster: Roster, admin_key: bytes | str | None) -> None:
    """Refuse a roster that this key (32 bytes or hexadecimal) did not sign; None takes the key that the roster names."""
    roster.verify_admin(roster.federation if admin_key is None else bytes_of(admin_key, "admin_key"))


def _policy_fault(field: str, wanted: str, seen: object) -> PeerFault:
    """Make the fault of a policy's refusal."""
    return PeerFault(
        Cause.POLICY_REFUSED, f"{field}: this member wants {wanted}, the coordinator offers {seen}"
    )
