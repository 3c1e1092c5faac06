"""The table of a conformance run: each rule of a member, kept, broken or not tried."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from assurance.conformance.play import Finding, Verdict
from assurance.vectors.specification import SPECIFICATION

MEMBER = ("member", "whoever", "decryptor", "any decoder")
NOT_A_MEMBER = {"AUDIT", "SHARE"}
"""Families that an auditor or a coordinator checks."""
OTHER_COHORT = "the coordinator would have to form a cohort that the real one refuses to form"
REPEATS = "no part repeats a sum: plays.json of the vectors does"
SECOND = "an answer that breaks it breaks a rule before it as well"
LEDGER = "only visible in its ledger: assurance/vectors/ledger.json has plays of it"
WHY = {
    "DECODE": "a client need not look at such a message before it has checked a signature",
    "CARDS": OTHER_COHORT,
    "CARDS-4": REPEATS,
    "CARDS-5": REPEATS,
    "CARDS-14": "paths are shown above 200 members only",
    "OPEN": REPEATS,
    "OPEN-3": "cards expire with the study, which lasts longer than a part",
    "OPEN-4": SECOND,
    "OPEN-14": "no part leaves an end out that the client has taken in another cohort",
    "OPEN-26": "limits are the client's own: their options differ from client to client",
    "FREEZE": "no part forms a cohort large enough for such a proposal to pass FREEZE-3",
    "FREEZE-1": "no part has two cohorts at once",
    "FREEZE-6": REPEATS,
    "EVICT-6": "needs the shares that the client keeps to itself",
    "EVICT-8": "no part has more false dealers than its study allows",
    "ERASE": "no part asks a client for the erasure of an attempt that it has not opened",
    "ERASE-2": "no part lets an attempt lapse in which the client holds no shares",
    "END-4": "a client that takes it sends nothing either",
    "COUNT-6": "needs several lying members",
    "RESULT": "nothing that a client sends shows whether it has accepted a record: results.json and heads.json of the vectors do",
    "PERIOD": "a client may take part in runs over data alone",
    "POLICY": "limits are the client's own: their options differ from client to client",
    "LEDGER": LEDGER,
    "SELECT": LEDGER,
    "ID": LEDGER,
    "RESTORE": "needs a folder from the middle of an attempt",
    "NOISE": LEDGER,
    "LAPSE": "what a client has erased is only visible in its folder: plays.json of the vectors lists it",
}
"""Why rules are not tried, by rule or family, unless a finding says it."""


def member_rules() -> list[str]:
    """Return the rules that a member checks, in the specification's order."""
    families = {
        each["family"]
        for each in SPECIFICATION["families"]
        if any(word in each["checked_by"] for word in MEMBER) and each["family"] not in NOT_A_MEMBER
    }
    return [rule["rule"] for rule in SPECIFICATION["rules"] if rule["rule"].partition("-")[0] in families]


def make_report(findings: Iterable[Finding]) -> dict[str, Any]:
    """Group findings by rule; a rule is broken if one of its findings is, kept if one is and none is broken."""
    by_rule = defaultdict[str, list[Finding]](list)
    for finding in findings:
        by_rule[finding.rule].append(finding)
    rules = member_rules()
    table = {}
    for rule in (*sorted(by_rule.keys() - rules), *rules):
        verdicts = {each.verdict for each in by_rule[rule]}
        tried = [verdict for verdict in (Verdict.BROKEN, Verdict.KEPT) if verdict in verdicts]
        verdict = tried[0] if tried else Verdict.NOT_TRIED
        why = WHY.get(rule) or WHY.get(rule.partition("-")[0], "no part plays it")
        table[rule] = {
            "verdict": verdict.value,
            "findings": [
                {
                    "name": each.name,
                    "verdict": each.verdict.value,
                    "seen": each.seen,
                    "expected": each.expected,
                }
                for each in by_rule[rule]
            ],
            **(
                {"why": by_rule[rule][0].seen if by_rule[rule] else why}
                if verdict is Verdict.NOT_TRIED
                else {}
            ),
        }
    count = sum(table[rule]["verdict"] != Verdict.NOT_TRIED.value for rule in rules)
    return {
        "rules": len(rules),
        "tried": count,
        "broken": [r for r in table if table[r]["verdict"] == "broken"],
        "table": table,
    }


def format_table(report: dict[str, Any]) -> str:
    """Return a line for each rule, and for a broken one what was seen."""
    lines = []
    for rule, row in report["table"].items():
        kept = sum(each["verdict"] == "kept" for each in row["findings"])
        note = row.get("why", f"{kept} of {len(row['findings'])}")
        lines.append(f"{rule:<12} {row['verdict']:<9}  {' '.join(note.split())[:160]}")
        lines += [
            f"{'':<12} {each['name']}: seen {each['seen']}; expected {each['expected']}"
            for each in row["findings"]
            if each["verdict"] == "broken"
        ]
    broken = ", ".join(report["broken"]) or "none"
    return "\n".join(
        [*lines, "", f"{report['tried']} of {report['rules']} rules of a member tried; broken: {broken}", ""]
    )
