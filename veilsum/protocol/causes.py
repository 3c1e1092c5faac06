"""The closed list of faults that a peer can cause.

Each name is also the problem type of an HTTP response (RFC 9457), a metric's label, a log event and a heading in the
documentation.
"""

from enum import StrEnum
from typing import Self


class Cause(StrEnum):
    """Reason for a refusal, or for an attempt that ended without a sum; `summary` describes it."""

    summary: str

    def __new__(cls, value: str, summary: str = "") -> Self:
        """Make a cause from its kebab-case name and one-sentence summary."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.summary = summary
        return member

    # Decoding
    UNKNOWN_VERSION = "unknown-version", "the message uses another protocol version than this side"
    UNKNOWN_MESSAGE = "unknown-message", "the message is of a kind that this path or phase does not accept"
    TRUNCATED = "truncated", "the message ends before its last field"
    LEFT_OVER_BYTES = "left-over-bytes", "extra bytes follow the message's last field"
    OVERSIZED = "oversized", "a field, a list or a body exceeds its size limit"
    MALFORMED = "malformed", "a field holds a value that the protocol does not allow"
    # Identities
    BAD_SIGNATURE = "bad-signature", "the signature does not match the signer's key"
    UNKNOWN_MEMBER = "unknown-member", "the member is not in the roster or cohort"
    WRONG_FEDERATION = (
        "wrong-federation",
        "the roster belongs to another federation than the one that this member pinned",
    )
    ROSTER_ROLLBACK = "roster-rollback", "the roster is older than one that was already seen"
    DUPLICATE = "duplicate", "a member, key or position appears twice"
    # Cards and the manifest
    WRONG_COHORT = "wrong-cohort", "the message belongs to another cohort"
    CARD_CONFLICT = "card-conflict", "the member already sent another card to this cohort"
    CARD_EXPIRED = "card-expired", "the key card has expired"
    LOW_ORDER_POINT = "low-order-point", "an X25519 key is a point of low order"
    MLKEM_KEY_INVALID = (
        "mlkem-key-invalid",
        "an ML-KEM key fails the check of FIPS 203, or is not the one whose hash its card holds",
    )
    PAIRING_MISSHAPEN = (
        "pairing-misshapen",
        "the pairing has another number of ciphertexts than the manifest asks of its member",
    )
    PAIRING_CONFLICT = "pairing-conflict", "the member already sent another pairing for this manifest"
    COHORT_TOO_SMALL = "cohort-too-small", "too few members enrolled and paired for a quorum"
    MANIFEST_MISMATCH = (
        "manifest-mismatch",
        "the manifest, the cards or the ciphertexts shown do not match each other, or what this member sent",
    )
    WEAK_PARAMETERS = (
        "weak-parameters",
        "the threshold, the quorum or the number of colluders is not what the rules compute",
    )
    STATE_RESTORED = (
        "state-restored",
        "this member's folder is a copy of an older one: its key has signed cards or uploads that the folder does not know",
    )
    CANARIES_DIFFER = (
        "canaries-differ",
        "this member's canaries are missing, or differ from the study's by more than its tolerance",
    )
    POLICY_REFUSED = "policy-refused", "this member's own policy forbids it"
    # The study
    STUDY_REFUSED = (
        "study-refused",
        "the study breaks a rule, has expired, was revoked or rolled back, or is not approved",
    )
    # Opening an attempt
    WRONG_CONTEXT = "wrong-context", "the message belongs to another round or attempt"
    WRONG_SEQUENCE = "wrong-sequence", "the round or attempt number is not the next one"
    CHAIN_BROKEN = "chain-broken", "the chain omits or changes an attempt that this member knows"
    TERMS_REFUSED = "terms-refused", "the terms contradict the study or the chain, or the round could not end"
    OUTCOME_MISSING = "outcome-missing", "this member does not know how an attempt that it took part in ended"
    ALREADY_SUMMED = (
        "already-summed",
        "this step of the study and period was already certified or lost over fresh records",
    )
    REPEAT_MISMATCH = (
        "repeat-mismatch",
        "the repeated run differs from the attempt that it repeats, in its members, records or question",
    )
    TERMS_EXPIRED = "terms-expired", "the round's latest end has passed"
    # Uploads
    UPLOAD_CONFLICT = "upload-conflict", "the member already sent another upload in this attempt"
    CHUNK_MISMATCH = "chunk-mismatch", "a chunk's bytes differ from those that the signed upload announced"
    CHUNK_UNKNOWN = "chunk-unknown", "the chunk's index is outside the upload, or no upload was announced"
    UPLOAD_MISSHAPEN = (
        "upload-misshapen",
        "the upload has another number of chunks, commitments or boxes than the round requires",
    )
    # Receipts and freezing
    EDGE_DISAGREEMENT = (
        "edge-disagreement",
        "two members committed to different seeds for the mask that they share",
    )
    BOX_REFUSED = "box-refused", "a share box does not open, or a share does not match its commitment"
    SURVIVORS_TOO_FEW = "survivors-too-few", "fewer members completed their uploads than the quorum needs"
    SURVIVORS_INVALID = (
        "survivors-invalid",
        "the proposed survivors are not the members whose uploads were delivered",
    )
    OWN_UPLOAD_CHANGED = (
        "own-upload-changed",
        "the coordinator shows another upload of this member than the one it sent",
    )
    WINDOW_EXCEEDED = "window-exceeded", "too many neighbouring members on the sparse graph dropped out"
    COUNT_MISMATCH = (
        "count-mismatch",
        "the withheld classes or the survivors do not follow from the counts, or these allow no sum",
    )
    NOT_A_DECRYPTOR = "not-a-decryptor", "the member holds no shares in this cohort"
    ALREADY_VOTED = "already-voted", "the decryptor already signed another outcome for this attempt"
    CERTIFICATE_INVALID = (
        "certificate-invalid",
        "the certificate lacks enough valid signatures on one outcome",
    )
    ERASURE_INVALID = (
        "erasure-invalid",
        "the erasure lacks enough reports of decryptors that revealed nothing",
    )
    # Revealing and the result
    SHARE_INVALID = "share-invalid", "a revealed share does not match its dealer's commitment"
    REVEAL_MISSHAPEN = "reveal-misshapen", "the reveal does not hold the shares that the certificate asks for"
    DEALER_INCONSISTENT = (
        "dealer-inconsistent",
        "a member's shares recover another secret than it committed to",
    )
    EVICTION_INVALID = "eviction-invalid", "the proof does not show that the dealer dealt false shares"
    DISCLOSURE_INVALID = ("disclosure-invalid", "the disclosed count is not what the certified members sent")
    QUORUM_LOST = "quorum-lost", "too few decryptors answered in time"
    SUM_CHECK_FAILED = "sum-check-failed", "the sum breaks an identity that all valid statistics satisfy"
    RESULT_MISMATCH = "result-mismatch", "the published result does not follow from what was signed"
    CANCELLED = "cancelled", "the operator cancelled the round"
    STORAGE_DAMAGED = "storage-damaged", "the coordinator's storage lost or changed data"
    # Talking to the service
    WRONG_PHASE = "wrong-phase", "the round's current phase does not accept this message"
    MALFORMED_REQUEST = "malformed-request", "the request's path, query, headers or JSON body is invalid"
    UNAUTHORISED = "unauthorised", "the request carries no valid operator token"
    REQUEST_UNSIGNED = "request-unsigned", "the request is not signed, or not in the required form"
    REQUEST_FORGED = (
        "request-forged",
        "the request's signature does not match the key of the signer that it names",
    )
    REQUEST_REPLAYED = "request-replayed", "a request with this signer's nonce was already accepted"
    CLOCK_SKEW = "clock-skew", "the request's signing time differs too much from the coordinator's clock"
    DIGEST_MISMATCH = "digest-mismatch", "the body does not match its Content-Digest"
    BODY_INCOMPLETE = "body-incomplete", "the body arrived too slowly, or its connection ended early"
    TOO_MANY_REQUESTS = "too-many-requests", "the caller sends more requests than the coordinator allows"
    FORBIDDEN = "forbidden", "the sender is authenticated, but is not allowed to do this"
    AUDIT_BROKEN = "audit-broken", "the audit log was changed after it was written"
    NOT_FOUND = "not-found", "there is no such federation, cohort, round or document"
    CONFLICT = "conflict", "the request contradicts what the coordinator already stores"
    UNAVAILABLE = "unavailable", "the coordinator cannot store or do this now"
