"""A sum's guarantees in words, for readers of a result (protocol §1)."""

TRUST = (
    "only the members together can remove the masks: the coordinator with up to `a` colluding members learns "
    "the sum, and no other member's statistics"
)
