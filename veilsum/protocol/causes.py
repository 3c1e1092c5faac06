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
    UNKNOWN_VERSION = "unknown-version", "the message is of a protocol version this side does not speak"
    UNKNOWN_MESSAGE = "unknown-message", "the message's kind is not one expected here"
    TRUNCATED = "truncated", "the message ends before its last field"
    LEFT_OVER_BYTES = "left-over-bytes", "bytes follow the message's last field"
    OVERSIZED = "oversized", "a field, a list or a body is longer than its limit"
    MALFORMED = "malformed", "a field's value is outside its domain"
    # Identities
    BAD_SIGNATURE = "bad-signature", "the signature does not verify under the signer's key"
    UNKNOWN_MEMBER = "unknown-member", "the member is not in the roster or cohort"
    WRONG_FEDERATION = "wrong-federation", "the roster belongs to another federation than the one pinned"
    ROSTER_ROLLBACK = "roster-rollback", "the roster is older than one already seen"
    DUPLICATE = "duplicate", "a member, key or position stands twice where it may stand once"
    # Cards and the manifest
    WRONG_COHORT = "wrong-cohort", "the message is for another cohort"
    CARD_CONFLICT = "card-conflict", "the member already sent another card to this cohort"
    CARD_EXPIRED = "card-expired", "the key card's time has passed"
    LOW_ORDER_POINT = "low-order-point", "an X25519 key is a point of low order"
    COHORT_TOO_SMALL = "cohort-too-small", "too few members sent cards for the quorum that the rules demand"
    MANIFEST_MISMATCH = "manifest-mismatch", "the manifest misstates this member's card or the roster"
    WEAK_PARAMETERS = "weak-parameters", "threshold, quorum or colluders differ from what the rules compute"
    POLICY_REFUSED = "policy-refused", "this member's own policy forbids it"
    # The study
    STUDY_REFUSED = (
        "study-refused",
        "the study breaks a rule, has expired, was revoked or rolled back, or was not approved",
    )
    # Opening an attempt
    WRONG_CONTEXT = "wrong-context", "the message is bound to another round or attempt"
    WRONG_SEQUENCE = "wrong-sequence", "the round or attempt number is not the next one"
    CHAIN_BROKEN = "chain-broken", "the chain omits or changes an attempt that this member knows"
    TERMS_REFUSED = "terms-refused", "the terms contradict the study or the chain"
    OUTCOME_MISSING = (
        "outcome-missing",
        "this member has not been shown how an attempt it took part in has ended",
    )
    ALREADY_SUMMED = (
        "already-summed",
        "this step of the study and period was certified before, over fresh records",
    )
    REPEAT_MISMATCH = (
        "repeat-mismatch",
        "a repeated run differs from the attempt that it repeats: in its members, its records or its question",
    )
    TERMS_EXPIRED = "terms-expired", "the terms' latest end has passed"
    # Uploads
    UPLOAD_CONFLICT = "upload-conflict", "the member already sent another upload in this attempt"
    CHUNK_MISMATCH = "chunk-mismatch", "a chunk's bytes are not those that the signed upload announces"
    CHUNK_UNKNOWN = "chunk-unknown", "the chunk's index is outside the upload, or no upload was announced"
    UPLOAD_MISSHAPEN = "upload-misshapen", "the upload has another number of chunks, commitments or boxes"
    # Receipts and freezing
    EDGE_DISAGREEMENT = "edge-disagreement", "the two ends of a pair committed to different mask seeds"
    BOX_REFUSED = "box-refused", "a share box does not open, or a share misses its commitment"
    SURVIVORS_TOO_FEW = "survivors-too-few", "fewer members survive than n_min"
    SURVIVORS_INVALID = (
        "survivors-invalid",
        "the proposed survivors are unsorted, repeated or not what was uploaded",
    )
    OWN_UPLOAD_CHANGED = "own-upload-changed", "the proposal shows another upload than this member sent"
    WINDOW_EXCEEDED = (
        "window-exceeded",
        "too many members next to each other on the sparse graph are lost",
    )
    INDICATOR_MISMATCH = (
        "indicator-mismatch",
        "classes withheld, or survivors, do not follow from the indicator round",
    )
    NOT_A_DECRYPTOR = "not-a-decryptor", "the member holds no shares in this cohort"
    ALREADY_VOTED = "already-voted", "the decryptor has signed another outcome for this context"
    CERTIFICATE_INVALID = (
        "certificate-invalid",
        "the certificate lacks a threshold of valid signatures on one outcome",
    )
    ERASURE_INVALID = (
        "erasure-invalid",
        "the erasure lacks reports of enough decryptors that revealed nothing",
    )
    # Revealing and the result
    SHARE_INVALID = "share-invalid", "a revealed share misses its dealer's commitment"
    REVEAL_MISSHAPEN = (
        "reveal-misshapen",
        "the reveal has another number of shares than the certificate asks for",
    )
    DEALER_INCONSISTENT = (
        "dealer-inconsistent",
        "a dealer's shares recover another secret than it committed to",
    )
    EVICTION_INVALID = "eviction-invalid", "the proof does not show that the dealer dealt falsely"
    DISCLOSURE_INVALID = "disclosure-invalid", "what is disclosed is not what the certified members sent"
    QUORUM_LOST = "quorum-lost", "fewer decryptors than the threshold answered in time"
    SUM_CHECK_FAILED = "sum-check-failed", "the sum breaks an identity that honest statistics satisfy"
    RESULT_MISMATCH = "result-mismatch", "the result does not follow from what was signed"
    CANCELLED = "cancelled", "the operator cancelled the round"
    STORAGE_DAMAGED = "storage-damaged", "the coordinator's storage does not hold what was put there"
    # Talking to the service
    WRONG_PHASE = "wrong-phase", "the round is in a phase that does not take this message"
    MALFORMED_REQUEST = "malformed-request", "the request's path, query, headers or JSON body is not valid"
    UNAUTHORISED = "unauthorised", "the request carries no valid operator token"
    REQUEST_UNSIGNED = "request-unsigned", "the request is not signed, or not as the profile has it"
    REQUEST_FORGED = (
        "request-forged",
        "the request's signature does not verify under the key of the signer that it names",
    )
    REQUEST_REPLAYED = "request-replayed", "a request with this signer's nonce has been taken before"
    CLOCK_SKEW = "clock-skew", "the request was signed for another time than the coordinator's clock shows"
    DIGEST_MISMATCH = "digest-mismatch", "the body is not the one that its content-digest names"
    BODY_INCOMPLETE = "body-incomplete", "the body came too slowly, or its connection ended before it did"
    TOO_MANY_REQUESTS = "too-many-requests", "the caller sends more requests than the coordinator allows it"
    FORBIDDEN = "forbidden", "the sender is authenticated, but may not do this"
    AUDIT_BROKEN = "audit-broken", "the audit log is not the one that was written"
    NOT_FOUND = "not-found", "there is no such federation, cohort, round or document"
    CONFLICT = "conflict", "the request contradicts what the coordinator already stores"
    UNAVAILABLE = "unavailable", "the coordinator cannot store or do this now; try again later"
