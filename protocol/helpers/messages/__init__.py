"""The messages of the helpers' mode."""

from protocol.helpers.messages.base import (
    HELPERS,
    MAX_CLIENTS,
    SEED_BYTES,
    SEEDS_BYTES,
    THRESHOLD,
    HelperKind,
)
from protocol.helpers.messages.opening import HelperCard, HelperManifest, HelperOpening
from protocol.helpers.messages.outcome import (
    ClientSet,
    Ended,
    HelperCertificate,
    HelperCounted,
    HelperFreeze,
    HelperLost,
    HelperRefusal,
    HelperSums,
    HelperVoidRequest,
    HelperVote,
    opened_in,
    root_outcome,
    set_outcome,
    survivors_tree,
)
from protocol.helpers.messages.parse import HELPER_MESSAGES, parse, parse_shown
from protocol.helpers.messages.upload import (
    HelperDeliveries,
    HelperDelivery,
    HelperHeader,
    HelperReceipt,
    HelperUpload,
)

__all__ = [
    "HELPERS",
    "HELPER_MESSAGES",
    "MAX_CLIENTS",
    "SEEDS_BYTES",
    "SEED_BYTES",
    "THRESHOLD",
    "ClientSet",
    "Ended",
    "HelperCard",
    "HelperCertificate",
    "HelperCounted",
    "HelperDeliveries",
    "HelperDelivery",
    "HelperFreeze",
    "HelperHeader",
    "HelperKind",
    "HelperLost",
    "HelperManifest",
    "HelperOpening",
    "HelperReceipt",
    "HelperRefusal",
    "HelperSums",
    "HelperUpload",
    "HelperVoidRequest",
    "HelperVote",
    "opened_in",
    "parse",
    "parse_shown",
    "root_outcome",
    "set_outcome",
    "survivors_tree",
]
