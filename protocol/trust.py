"""What each mode promises, in words for whoever reads a result (protocol §1, helpers H1)."""

from protocol.rest import ModeName

TRUST: dict[ModeName, str] = {
    "members": (
        "the members take the masks off together: only the sum can be computed against the coordinator and up to `a` members, "
        "together; no two organisations are trusted more than others"
    ),
    "helpers": (
        "four helpers take the masks off: only the sum can be computed against the coordinator, any ONE helper and up to `a` "
        "clients, together. TWO helpers with the coordinator read every client's vector, in every round, and nobody notices. "
        "No client has seen the ledger: that earlier sums are kept track of is trusted to three helpers"
    ),
}
