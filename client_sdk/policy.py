"""What a member insists on, whatever the coordinator says: a policy refuses, it never changes a value."""

from collections.abc import Iterable
from dataclasses import dataclass

from calibration.questions import QUESTIONS
from client_sdk.asked import terms_mechanism
from client_sdk.errors import Misuse, PeerFault
from protocol.attempt import Attempt, colluders_assumed
from protocol.causes import Cause
from protocol.messages import Family, Manifest, Roster, Terms

_DAY_S = 86_400.0


@dataclass(frozen=True)
class Policy:
    """A member's own limits.

    Attributes:
        admin_key: the admin's Ed25519 public key, 32 bytes or hexadecimal: pins the federation. Get it from the
            admin, not from the coordinator.
        members_min: fewest members in a cohort.
        survivors_min: fewest members a sum may be certified with.
        honest_min: fewest honest members that a sum, or a group of the ledger, must hide among.
        colluders_min: fewest colluding members that the cohort's parameters must withstand; None for a quarter of
            the roster, which is what a cohort has unless its operator asks for another number. Not of the cohort:
            the coordinator chooses whose cards it shows, and could show few beside those that collude.
        decryptor_colluders_min: fewest colluding decryptors that they must withstand, 0 for any: where the admin nominates the
            decryptors it is about a third of those, and may be far below `colluders_min`; one more reads any member.
        loss_max: most members in a thousand that a cohort may be sized to lose.
        accept_exceptions: whether a round may expose a group of the ledger that this member stands in, where the admin
            has signed that it may.
        changed_records_min: how many records must have changed before a lineage is used in another version; 0 for any.
            Two exact sums show the sum of what changed between them, over all members whose records did.
        publish_rare_classes: whether classes that few members hold may be published, where the admin has signed so.
        statistics: names of statistics this member sums; "indicator" tells all members how many of them hold each class, and
            comes first where rare classes are withheld.
            Not by default: CCVR's, which show each class's second moments by themselves.
        sigma_min: least deviation of the noise on a sum, on whichever element has least, in units of features of length 1;
            above 0, exact sums are refused.
        mu_max: most μ (Gaussian differential privacy) that one round may take; None for any, and for exact sums.
        mu_budget: most μ that all noisy rounds over one lineage may take together, √Σμ².
        delta: δ at which ε is shown.
        extractors: digests, 32 bytes or hexadecimal, among those the roster approves; None for all of those.
        lifetime_max_s: longest time from opening to the round's latest end, in seconds.
        records_max: most records that the members of a round may sum.
        card_lifetime_s: how long this member's key cards are good for, in seconds.

    Raises:
        Misuse: a key or digest that is none, or limits out of their domain.
    """

    admin_key: bytes | str
    members_min: int = 3
    survivors_min: int = 3
    honest_min: int = 3
    colluders_min: int | None = None
    decryptor_colluders_min: int = 0
    loss_max: int = 250
    accept_exceptions: bool = False
    changed_records_min: int = 10
    publish_rare_classes: bool = True
    statistics: frozenset[str] = frozenset({*QUESTIONS, "indicator"} - {"ccvr"})
    sigma_min: float = 0.0
    mu_max: float | None = None
    mu_budget: float = 2.0
    delta: float = 1e-5
    extractors: frozenset[bytes | str] | None = None
    lifetime_max_s: float = 30 * _DAY_S
    records_max: int = 1 << 32
    card_lifetime_s: float = 90 * _DAY_S

    def __post_init__(self) -> None:
        _set(self, "admin_key", bytes_of(self.admin_key, "admin_key"))
        _set(self, "statistics", _names(self.statistics, "statistics"))
        if self.extractors is not None:
            _set(self, "extractors", frozenset(bytes_of(value, "extractors") for value in self.extractors))
        if min(self.members_min, self.survivors_min, self.honest_min) < 3:
            raise Misuse("members_min, survivors_min and honest_min are at least 3")
        least = min(
            self.colluders_min or 0, self.decryptor_colluders_min, self.loss_max, self.changed_records_min
        )
        if least < 0:
            raise Misuse(
                "colluders_min, decryptor_colluders_min, loss_max and changed_records_min are at least 0"
            )
        if not (self.lifetime_max_s > 0 and self.records_max > 0 and self.card_lifetime_s > 0):
            raise Misuse("lifetime_max_s, records_max and card_lifetime_s are above 0")
        if not (self.sigma_min >= 0 and self.mu_budget > 0 and 0 < self.delta < 1) or (
            self.mu_max is not None and not self.mu_max > 0
        ):
            raise Misuse("sigma_min is at least 0, mu_max and mu_budget above 0, delta between 0 and 1")

    @property
    def federation(self) -> bytes:
        """The federation's id, which is the pinned admin key, 32 bytes."""
        assert isinstance(self.admin_key, bytes)
        return self.admin_key

    def check_roster(self, roster: Roster) -> None:
        """Refuse a roster of another federation (wrong-federation), not the admin's (bad-signature), or policy-refused."""
        roster.verify_admin(self.federation)
        if not (roster.withhold or self.publish_rare_classes):
            wanted = "rare classes to be withheld"
            raise refused("publish_rare_classes", wanted, "a roster that publishes them", by="the admin")

    def check_manifest(self, roster: Roster, manifest: Manifest) -> None:
        """Refuse a cohort, whose manifest has passed `protocol.attempt.check_manifest`, in this order.

        1. n ≥ members_min; 2. n_min ≥ survivors_min; 3. h_min ≥ honest_min; 4. a ≥ colluders_min; 5. a_D ≥
        decryptor_colluders_min; 6. loss ≤ loss_max.

        Raises:
            PeerFault: policy-refused, naming the field, what it demands and what it saw.
        """
        quarter = colluders_assumed(roster)
        for field, wanted, seen in (
            ("members_min", self.members_min, len(manifest.members)),
            ("survivors_min", self.survivors_min, manifest.survivors_min),
            ("honest_min", self.honest_min, manifest.honest_min),
            (
                "colluders_min",
                quarter if self.colluders_min is None else self.colluders_min,
                manifest.colluders,
            ),
            ("decryptor_colluders_min", self.decryptor_colluders_min, manifest.decryptor_colluders),
        ):
            if seen < wanted:
                raise refused(field, f"at least {wanted}", seen)
        if manifest.loss > self.loss_max:
            raise refused("loss_max", f"at most {self.loss_max} in a thousand", manifest.loss)

    def check_opening(self, attempt: Attempt, member: str, now_s: float) -> None:
        """Refuse a round: its terms (`check_terms`), its noise (`check_noise`), then exceptions that name this member.

        Raises:
            PeerFault: policy-refused, naming the field, what it demands and what it saw.
        """
        self.check_terms(attempt.opening.terms, now_s)
        self.check_noise(attempt)
        for exception in attempt.opening.exceptions:
            if member in exception.members and not self.accept_exceptions:
                raise refused(
                    "accept_exceptions",
                    "no exception to the ledger that names it",
                    f"one for {', '.join(exception.members)}: {exception.reason}",
                    by="the admin",
                )

    def check_terms(self, terms: Terms, now_s: float) -> None:
        """Refuse terms, in this order (policy-refused).

        1. statistic, 2. extractor, 3. records_max, 4. lifetime.
        """
        if terms.statistic not in self.statistics:
            raise refused("statistics", _one_of(self.statistics), terms.statistic)
        if self.extractors is not None and terms.extractor not in self.extractors:
            wanted = _one_of(value.hex() for value in self.extractors if isinstance(value, bytes))
            raise refused("extractors", wanted, terms.extractor.hex())
        if terms.records_max > self.records_max:
            raise refused("records_max", f"at most {self.records_max}", terms.records_max)
        if terms.latest_end_s - now_s > self.lifetime_max_s:
            seen = f"{terms.latest_end_s - now_s:.0f} s"
            raise refused("lifetime_max_s", f"at most {self.lifetime_max_s:.0f} s", seen)

    def check_noise(self, attempt: Attempt) -> None:
        """Refuse a sum that says more of a record than this member allows, in this order (policy-refused).

        1. the least deviation on any element ≥ sigma_min; 2. μ ≤ mu_max. An exact sum has neither, nor has a count of the
        classes' holders.
        """
        if attempt.opening.terms.family == Family.INDICATOR:
            exact = self.sigma_min > 0 or self.mu_max is not None
            if exact:
                raise refused("noise", "noisy sums only", "exact counts of the classes' holders")
            return
        mechanism = terms_mechanism(attempt)
        sigma = 0.0 if mechanism is None else mechanism.deviation_min
        if sigma < self.sigma_min:
            raise refused("sigma_min", f"a deviation of at least {self.sigma_min:g}", f"{sigma:g}")
        if self.mu_max is not None and (mechanism is None or mechanism.mu_round > self.mu_max):
            seen = "an exact sum" if mechanism is None else f"{mechanism.mu_round:g}"
            raise refused("mu_max", f"μ of at most {self.mu_max:g}", seen)


def refused(field: str, wanted: object, seen: object, by: str = "the coordinator") -> PeerFault:
    """The one fault of this member's own making: it names the field, what was wanted and what came, from whom."""
    verb = "offer" if by == "the statistics" else "offers"
    return PeerFault(Cause.POLICY_REFUSED, f"{field}: this member wants {wanted}, {by} {verb} {seen}")


def _set(policy: Policy, field: str, value: object) -> None:
    object.__setattr__(policy, field, value)  # frozen: only while it is being made


def _names(value: Iterable[str] | str, field: str) -> frozenset[str]:
    if isinstance(value, str):
        raise Misuse(f'{field} is a set of names: write {{"{value}"}}')
    return frozenset(value)


def bytes_of(value: bytes | str, field: str) -> bytes:
    """32 bytes, given as they are or as 64 hexadecimal digits; Misuse for others."""
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    except (ValueError, TypeError) as error:
        raise Misuse(f"{field}: not hexadecimal") from error
    if len(raw) != 32:
        raise Misuse(f"{field}: 32 bytes, or 64 hexadecimal digits, not {len(raw)} bytes")
    return raw


def check_admin(roster: Roster, admin_key: bytes | str | None) -> None:
    """Refuse a roster that is not signed by this key, 32 bytes or their digits; None takes the roster's own word for whose it is."""
    roster.verify_admin(roster.federation if admin_key is None else bytes_of(admin_key, "admin_key"))


def _one_of(values: Iterable[str]) -> str:
    return "one of " + (", ".join(sorted(values)) or "none")
