"""The member's SDK: its identity, its policy, and taking part in runs.

>>> identity = Identity.create("~/.veilsum", "hospital-3")
>>> policy = Policy(admin_key="…64 hexadecimal digits, from the admin…", approved={"…the study's approval digest…"})
>>> with Member("https://sum.example.org", identity, policy) as member:
...     for result in member.join(Records(features, labels, ids=exam_ids)):
...         print(result.evaluate(test_features, test_labels))

Names are imported when they are first used: `import client_sdk` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_sdk.errors import Declined
    from client_sdk.identity import Identity
    from client_sdk.member import AsyncMember, Member
    from client_sdk.policy import Policy
    from client_sdk.progress import Progress
    from client_sdk.records import Records
    from client_sdk.result import Result

__all__ = ["AsyncMember", "Declined", "Identity", "Member", "Policy", "Progress", "Records", "Result"]

_HOMES = {
    "AsyncMember": "member",
    "Declined": "errors",
    "Identity": "identity",
    "Member": "member",
    "Policy": "policy",
    "Progress": "progress",
    "Records": "records",
    "Result": "result",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
