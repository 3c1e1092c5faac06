"""What the packages say to whoever calls them, said to whoever types commands."""

import re

_SAID = {
    r"pass normalise=True": "pass --normalise",
    r"send 'Authorization: Bearer <token>'": "set VEILSUM_OPERATOR_TOKEN, or name its file by `veilsum --token-file`",
    r"(create|make) one with Identity\.create(\(folder, member\))?": "make one with `veilsum member new`",
    r"load it with Identity\.load, or choose": "see it with `veilsum member show`, or choose",
    r"pass verify= with the path of your authority's PEM file": "pass --ca with your authority's PEM file",
    r"pass cert= with your PEM file of one": "name yours by `veilsum --client-cert`",
    r"finish it by contribute\('(\w+)'\) first": r"finish it by `veilsum member join --round \1` first",
    r"pass the same statistics, or statistics=None to": "pass the same --features, or none to",
    r"with statistics=None this": "without --features this",
    r": pass the statistics$": ": pass --features",
    r"pass lineage=,": "pass --lineage,",
    r"leave heard_within_s out": "leave --heard-within out",
    r"pass a larger ridge, or None to choose one by GCV": "pass a larger --ridge, or none to choose one by GCV",
}


def for_commands(message: str) -> str:
    """The message with options and commands in place of arguments and methods."""
    for pattern, replacement in _SAID.items():
        message = re.sub(pattern, replacement, message)
    return message
