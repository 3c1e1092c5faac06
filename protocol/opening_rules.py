"""What anybody with roster and manifest can check of an opening: members before they take part, auditors after (protocol §4.3)."""

from itertools import pairwise

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import NO_INDICATOR, Family, Manifest, Opening, Roster


def check_opening(roster: Roster, manifest: Manifest, opening: Opening) -> None:
    """Check an opening as far as no clock and no member's own history is needed, in the page's order.

    Raises:
        PeerFault: wrong-cohort, bad-signature, chain-broken, terms-refused, exception-refused.
    """
    if opening.cohort != manifest.cohort:
        raise PeerFault(Cause.WRONG_COHORT, "the opening is for another cohort", ["coordinator"])
    opening.verify(roster.coordinator, "coordinator")
    check_places(opening)
    check_terms(roster, manifest, opening)
    check_exceptions(roster, opening)


def check_places(opening: Opening) -> None:
    """Refuse links that leave out an attempt of this cohort (protocol §4.3, clause 5): chain-broken."""
    places = [(link.sequence, link.attempt) for link in opening.links if link.cohort == opening.cohort]
    places.append(opening.place)
    if places[0] != (0, 0) or any(
        after not in {(before[0], before[1] + 1), (before[0] + 1, 0)} for before, after in pairwise(places)
    ):
        raise PeerFault(Cause.CHAIN_BROKEN, "the history skips an attempt of this cohort", ["coordinator"])


def check_terms(roster: Roster, manifest: Manifest, opening: Opening) -> None:
    """Refuse terms that the admin or the caps do not allow (protocol §4.3, clause 6): terms-refused."""
    terms, records = opening.terms, sum(manifest.caps)
    if terms.extractor not in roster.extractors:
        raise PeerFault(Cause.TERMS_REFUSED, "the extractor is not on the admin's list", ["coordinator"])
    if records > terms.records_max:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"members may hold {records} records, the terms allow for {terms.records_max}",
            ["coordinator"],
        )
    if roster.withhold and terms.indicator == NO_INDICATOR and terms.family != Family.INDICATOR:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            "the admin demands that rare classes are withheld, and the terms name no indicator round",
            ["coordinator"],
        )


def check_exceptions(roster: Roster, opening: Opening) -> None:
    """Refuse exceptions that are not the admin's for this sequence (protocol §4.3, clause 7): exception-refused."""
    wanted = (roster.federation, opening.cohort, opening.sequence)
    for exception in opening.exceptions:
        if (exception.federation, exception.cohort, exception.sequence) != wanted:
            raise PeerFault(Cause.EXCEPTION_REFUSED, "an exception is for another round", ["coordinator"])
        exception.verify(roster.federation, "admin")
