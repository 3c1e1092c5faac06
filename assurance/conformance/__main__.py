"""Drive a client of the protocol, in whatever language, over REST, and judge it by what it sends: `python -m assurance.conformance serve`."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from assurance.conformance.clients import ByHand, Client, Command
from assurance.conformance.parts import all_parts
from assurance.conformance.play import Finding, Limits, Verdict, play_part
from assurance.conformance.report import format_table, make_report
from service.telemetry import logs


async def serve(client: Client, limits: Limits, pattern: str) -> list[Finding]:
    """Play every part whose name holds the pattern."""
    findings = list[Finding]()
    for part in all_parts():
        if pattern in part.name:
            try:
                found = await play_part(part, client, limits)
            except Exception as error:  # noqa: BLE001 - what a client does to one part must not hide the others
                why = f"the part ended early: {error!r}"
                found = [Finding(each.rule, each.name, Verdict.NOT_TRIED, why) for each in part.doctorings]
            broken = sum(each.verdict.value == "broken" for each in found)
            sys.stderr.write(f"{part.name}: {len(found)} findings, {broken} broken\n")
            findings += found
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m assurance.conformance", description=__doc__)
    serving = parser.add_subparsers(required=True).add_parser(
        "serve", help="serve a coordinator to the client, and judge it"
    )
    serving.add_argument(
        "--new",
        help="command that makes {folder} for {member}, pins {admin}, and prints its public_key as JSON",
    )
    serving.add_argument(
        "--client",
        help="command that takes part in one run, with {folder}, {data} or {npz}, {url} and {approve}",
    )
    serving.add_argument("--key", help="the client's public key, if it is started by hand")
    serving.add_argument("--only", default="", metavar="TEXT", help="play the parts whose name holds this")
    serving.add_argument(
        "--quiet-s", type=float, default=Limits.quiet_s, help="silence that counts as a refusal"
    )
    serving.add_argument("--step-s", type=float, default=Limits.step_s, help="limit for each false answer")
    serving.add_argument("--json", type=Path, help="also write the table here")
    chosen = parser.parse_args()
    if chosen.client and chosen.new:
        client: Client = Command(chosen.new, chosen.client)
    elif chosen.key and not chosen.client:
        client = ByHand(bytes.fromhex(chosen.key))
    else:
        parser.error("give --new and --client, or --key to start the client by hand")
    logs.configure_logs(quiet=True)
    limits = Limits(quiet_s=chosen.quiet_s, step_s=chosen.step_s)
    report = make_report(asyncio.run(serve(client, limits, chosen.only)))
    sys.stdout.write(format_table(report))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    raise SystemExit(1 if report["broken"] else 0)


if __name__ == "__main__":
    main()
