"""A sum's guarantees in words, for readers of a result (protocol §1)."""

TRUST = (
    "the members take the masks off together: only the sum can be computed against the coordinator and up to `a` members, "
    "together; no two organisations are trusted more than others"
)
