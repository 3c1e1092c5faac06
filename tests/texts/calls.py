"""Wrong calls of the SDK, as a member's code may make them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from client_sdk import Identity, Member, Policy, Records, Result
from client_sdk.errors import ClientError, Misuse, PeerFault
from veilsum.calibration import CalibrationError

CALLS = """
Policy("ab" * 31)
Policy(KEY, approved=["12"])
Identity.load("nowhere")
Identity.create("a", "hospital-a")
Identity.create("b", "Hospital")
Identity.create("b", "hospital-b", held_out=1.0)
Identity.create("b", "hospital-b", ledger="nowhere")
Identity.create("b", "hospital-b", ledger="a")
Member("sum.example.org", identity, Policy(KEY))
Member(URL, "hospital-a", Policy(KEY))
Member(URL, identity, "hospital-a")
Member(URL, identity, Policy(KEY), roster=7)
Member(URL, identity, Policy(KEY), roster="no.bin")
Member(URL, identity, Policy(KEY), verify="no.pem")
Member(URL, identity, Policy(KEY), cert="no.pem")
Records([], [])
Records(ROWS, [0, 1])
Records(ROWS, np.eye(4))
Records(ROWS, np.ones((4, 2)))
Records(ROWS, [0, 1.5, 0, 1])
Records(ROWS, LABELS, ids=["a"])
Records(ROWS, LABELS, ids=[1.5, 2.5, 3.5, 4.5])
Records(ROWS, LABELS, ids=["a", "b", "c", " "])
Records(ROWS, LABELS, ids=["a" * 1025, "b", "c", "d"])
Records(ROWS, LABELS, columns=["age", "age", "ldh"])
Result.load("nowhere")
""".strip().splitlines()


def explain_calls() -> Iterator[str]:
    """Yield each call, and what it raises, in an empty folder."""
    names = {
        **{each.__name__: each for each in (Identity, Member, Policy, Records, Result)},
        "np": np,
        "KEY": "ab" * 32,
        "URL": "https://sum.example.org",
        "ROWS": np.ones((4, 3)),
        "LABELS": [0, 1, 0, 1],
        "identity": Identity.create("a", "hospital-a"),
    }
    for call in CALLS:
        yield f"    {call}"
        try:
            eval(call, names)
        except (ClientError, Misuse, PeerFault, CalibrationError) as error:
            yield f"    {type(error).__name__}: {str(error).replace(str(Path.cwd()), '.')}"
