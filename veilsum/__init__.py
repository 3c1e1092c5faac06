"""Secure aggregation of classifier heads.

>>> from veilsum import Identity, Member, Policy, Records

Names are imported on first use, so `import veilsum` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_sdk import AsyncMember, Identity, Member, Policy, Records, Result
    from veilsum.calibration import FFCStatistics, solve_ffc

__all__ = ["AsyncMember", "FFCStatistics", "Identity", "Member", "Policy", "Records", "Result", "solve_ffc"]

_HOMES = {
    name: "veilsum.calibration" if name in {"FFCStatistics", "solve_ffc"} else "client_sdk"
    for name in __all__
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
