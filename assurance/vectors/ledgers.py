"""Plays over a member's ledger: what it answers, reserves, spends and frees (member: Selection, Ledger, Noise)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assurance.vectors.ledger_player import MEMBERS
from tests.support.simulator import simulated_content, simulated_question

Json = dict[str, Any]
ROWS = 20
EXPIRES_S, BRIEFLY_S = 2_000_000, 1_100_000
QUESTION: Json = {
    **simulated_question(len(MEMBERS)),
    "dim": 2,
    "classes": ["left", "right"],
    "members_min": len(MEMBERS),
    "records": {"least": 17, "most": 40, "least_per_class": 5, "rows_per_id": 1},
}
NOISE: Json = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"}
NOISY: Json = {"noise": NOISE, "ring_bits": 48}
QUESTIONS: dict[str, Json] = {
    "exact": {},
    "other": {"constant": True},
    "brief": {"constant": True},
    "again": {"extractor": "ab" * 32},
    "again-too": {"extractor": "ab" * 32, "ring_bits": 48},
    "third": {"extractor": "cd" * 32},
    "withholding": {"withhold": {"margin": 0}},
    "withholding-again": {"withhold": {"margin": 0}, "extractor": "ab" * 32},
    "noisy": NOISY,
    "noisier": {**NOISY, "noise": {**NOISE, "epsilon": 8.0}},
    "noisier-again": {**NOISY, "noise": {**NOISE, "epsilon": 8.0}, "extractor": "ab" * 32},
    "per-member": {**NOISY, "noise": {**NOISE, "unit": "member"}},
}


def study(name: str) -> str:
    """Return a study's content."""
    expires_s = BRIEFLY_S if name == "brief" else EXPIRES_S
    content = simulated_content(QUESTION | QUESTIONS[name], expires_s, {"name": name})
    return content.to_bytes().decode()


def data(name: str, rows: int = ROWS, *, ids: bool = True, **changes: Any) -> Json:
    """Return records with an id each, `name-0` and on; changes replace columns."""
    features = [[3.0, 4.0] if row % 2 else [4.0, 3.0] for row in range(rows)]
    labels = [("left", "right")[row % 2] for row in range(rows)]
    own: Sequence[str] | None = [f"{name}-{row}" for row in range(rows)] if ids else None
    return {"rows": features, "labels": labels, "ids": own, **changes}


FEATURES = data("a")["rows"]
DATA: dict[str, Json] = {
    "a": data("a"),
    "b": data("b"),
    "few": data("a", 16),
    "half": data("a", ids=True) | {"ids": [f"a-{row}" if row < 10 else f"b-{row}" for row in range(ROWS)]},
    "changed": data("a", rows=ROWS) | {"rows": [[1.0, 2.0]] * ROWS},
    "anonymous": data("", ids=False),
    "unlabelled": data("a") | {"labels": ["right", *data("a")["labels"][1:]]},
    "unusable": data("a") | {"rows": [[0.0, 0.0], *FEATURES[1:]]},
    "bare": data("a") | {"rows": [[3.0, 4.0] if row < 8 else [4.0, 0.0] for row in range(ROWS)]},
    "sparse": data("a") | {"rows": [[4.0, 0.0] if row % 2 == 0 else [3.0, 4.0] for row in range(ROWS)]},
}
WATCHED = ("a-0", "a-19", "b-0")
ALL, OTHERS = [*MEMBERS], [*MEMBERS[1:]]


def answer(study: str, period: str = "p1", data: str = "a", **more: Any) -> Json:
    return {"answer": study, "period": period, "data": data, **more}


def begin(name: str, study: str = "exact", period: str = "p1", step: str = "sum", **more: Any) -> Json:
    return {"open": name, "study": study, "period": period, "step": step, **more}


def upload(name: str, study: str = "exact", period: str = "p1", step: str = "sum", **more: Any) -> list[Json]:
    return [begin(name, study, period, step, **more), {"announce": name}]


def end(name: str, reason: str = "none", survivors: Sequence[str] = ()) -> Json:
    return {"end": name, "as": reason} | ({"survivors": [*survivors]} if survivors else {})


def give_up(study: str = "exact", period: str = "p1") -> Json:
    return {"give-up": study, "period": period}


SUMMED = [answer("exact"), *upload("x"), end("x", survivors=ALL)]
PLAYS: Mapping[str, tuple[tuple[str, list[Json]], ...]] = {
    "SELECT-5": (
        ("a yes holds the records before any card is out", [answer("exact"), answer("other"), answer("other", "p2", "b")]),
    ),
    "SELECT-6": (
        ("other data, and fewer, change neither an answer nor a vector",
         [answer("exact"), answer("exact", data="changed"), *upload("x"), end("x", "cancelled"), answer("exact", data="few"), *upload("y")]),
        ("a no stays a no when there are more rows", [answer("exact", data="few"), answer("exact")]),
    ),
    "SELECT-7": (
        ("the next period beside an attempt without an end", [answer("exact"), *upload("x"), answer("exact", "p2")]),
        ("the next period beside an opened attempt without an end", [answer("exact"), begin("x"), answer("exact", "p2", "b")]),
    ),
    "SELECT-8": (
        ("rows that bear one more sum, and not a third", [*SUMMED, answer("again", repeats="x"), answer("third", repeats="x")]),
        ("a question that was given up is not counted",
         [*SUMMED, answer("again", repeats="x"), give_up("again"), answer("third", repeats="x")]),
        ("a question that was given up after an opening is not counted",
         [*SUMMED, answer("again", repeats="x"), begin("y", "again", repeats="x"), give_up("again"), answer("third", repeats="x")]),
        ("a question that was given up after a VOID is not counted",
         [*SUMMED, answer("again", repeats="x"), *upload("y", "again", repeats="x"), end("y", "cancelled"), give_up("again"), answer("third", repeats="x")]),
        ("a second question for an extractor", [*SUMMED, answer("again", repeats="x"), give_up("again"), answer("again-too", repeats="x")]),
        ("a question that was answered for a sum's records, over fresh ones", [*SUMMED, answer("again", repeats="x"), answer("again", data="b")]),
        ("a question that was given up after an upload is counted until it has an end",
         [*SUMMED, answer("again", repeats="x"), *upload("y", "again", repeats="x"), give_up("again"), answer("third", repeats="x")]),
        ("too few members stand in the repeated sum", [answer("exact"), *upload("x"), end("x", survivors=ALL[:4]), answer("again", repeats="x")]),
        ("a row is missing", [*SUMMED, answer("again", data="few", repeats="x")]),
        ("a row has another label", [*SUMMED, answer("again", data="unlabelled", repeats="x")]),
        ("a row is not usable", [*SUMMED, answer("again", data="unusable", repeats="x")]),
        ("under the new extractor too few features are not zero", [*SUMMED, answer("again", data="bare", repeats="x")]),
        ("without a sum", [answer("exact"), *upload("x", step="sum"), end("x", "cancelled"), answer("again", repeats="x")]),
        ("for another period", [*SUMMED, answer("again", "p2", repeats="x")]),
        ("of a noisy sum", [answer("noisy"), *upload("x", "noisy", step="mean"), end("x", survivors=ALL), answer("again", repeats="x")]),
        ("a class that would not be held any more",
         [answer("withholding"), *upload("c", "withholding", step="count"), end("c", survivors=ALL), *upload("x", "withholding"),
          end("x", survivors=ALL), answer("withholding-again", data="sparse", repeats="x")]),
        ("the same question again is the same reservation", [*SUMMED, answer("exact", repeats="x"), *upload("y", repeats="x")]),
    ),
    "LEDGER-1": (
        ("records that a run has reserved are in no other", [answer("exact"), answer("other", data="half"), answer("other", "p2", "b")]),
        ("the next period beside another question's attempt without an end",
         [answer("exact"), answer("other", data="b"), *upload("x", "other"), answer("exact", "p2")]),
        ("runs of two questions with records of their own", [answer("exact"), answer("other", "p2", "b")]),
        ("records that a sum holds are in no other", [*SUMMED, answer("exact", "p2"), answer("other")]),
    ),
    "LEDGER-2": (
        ("a sum with the member", SUMMED),
        ("a sum without the member", [answer("exact"), *upload("x"), end("x", survivors=OTHERS)]),
        ("a sum that was lost after the announcement", [answer("exact"), *upload("x"), end("x", "lost")]),
        ("a sum that was lost before the announcement", [answer("exact"), begin("x"), end("x", "lost")]),
        ("a sum that was erased", [answer("exact"), *upload("x"), end("x", "erased")]),
        ("a certificate with the member, and an erasure in its place", [*SUMMED, end("x", "erased")]),
        ("a certificate without the member, and a loss in its place",
         [answer("exact"), *upload("x"), end("x", survivors=OTHERS), end("x", "lost")]),
        ("a count spends nothing", [answer("withholding"), *upload("c", "withholding", step="count"), end("c", survivors=ALL)]),
        ("a count without the member ends its run",
         [answer("withholding"), *upload("c", "withholding", step="count"), end("c", survivors=OTHERS)]),
    ),
    "OPEN-26": (
        ("an opening of a run without an answer", [begin("x")]),
        ("an opening of a run that was answered no", [answer("exact", data="few"), begin("x")]),
    ),
    "LEDGER-3": (
        ("an opening of a run that was given up", [answer("exact"), give_up(), begin("x")]),
        ("a repeat of a run that was given up", [*SUMMED, give_up(), begin("y", repeats="x")]),
        ("an announcement of a run that was given up since", [answer("exact"), begin("x"), give_up(), {"announce": "x"}]),
    ),
    "LEDGER-4": (
        ("an opening after a record was marked as summed", [answer("exact"), {"mark": "a"}, begin("x")]),
        ("an announcement after a record was marked as summed", [answer("exact"), begin("x"), {"mark": "a"}, {"announce": "x"}]),
    ),
    "LEDGER-5": (
        *(
            (f"given up, and then {how}", [answer("exact"), *upload("x"), give_up(), end("x", reason, survivors), answer("other")])
            for how, reason, survivors in (
                ("cancelled", "cancelled", ()), ("erased", "erased", ()), ("summed without the member", "none", OTHERS),
                ("lost", "lost", ()), ("summed with the member", "none", ALL),
            )
        ),
        ("the next period gives the earlier run up, once its attempt is closed",
         [answer("exact"), *upload("x"), end("x", "cancelled"), answer("exact", "p2"), answer("exact")]),
        ("a VOID alone frees nothing", [answer("exact"), *upload("x"), end("x", "cancelled"), answer("other")]),
        ("each sum needs its proof", [answer("exact"), *upload("x"), end("x", "cancelled"), *upload("y"), give_up(), answer("other"), end("y", "erased"), answer("other", "p2")]),
        ("what was opened and not announced needs none", [answer("exact"), begin("x"), give_up(), answer("other")]),
        ("a count needs no proof, and counts", [answer("withholding"), *upload("c", "withholding", step="count"), give_up("withholding"), answer("exact")]),
        ("a run that is over, with known ends", [answer("exact"), *upload("x"), {"over": "exact", "period": "p1"}, end("x", "cancelled"), {"over": "exact", "period": "p1"}]),
        ("a run whose study has expired is given up when another one is answered",
         [answer("brief"), {"clock": BRIEFLY_S}, answer("exact"), answer("exact", "p2")]),
        ("a spent run stays spent when it is given up", [*SUMMED, give_up(), answer("other")]),
    ),
    "LEDGER-6": (
        ("three runs count",
         [each for number in (1, 2, 3) for each in (
             answer("withholding", f"p{number}"), *upload(f"c{number}", "withholding", f"p{number}", "count"),
             end(f"c{number}", "lost" if number == 1 else "none", () if number == 1 else ALL), give_up("withholding", f"p{number}"))]
         + [answer("withholding", "p4"), answer("exact")]),
        ("a count that was opened and not announced does not count",
         [answer("withholding"), begin("c", "withholding", step="count"), give_up("withholding"), answer("noisy")]),
        ("a count that was erased does not count",
         [answer("withholding"), *upload("c", "withholding", step="count"), end("c", "erased"), give_up("withholding"), answer("noisy")]),
    ),
    "LEDGER-7": (
        ("what an exact run has reserved, and then freed", [answer("exact"), answer("noisy"), give_up(), answer("noisy", "p2")]),
        ("what an exact run counts", [answer("withholding"), *upload("c", "withholding", step="count"), end("c", survivors=ALL), give_up("withholding"), answer("noisy")]),
        ("what a noisy run charges", [answer("noisy"), answer("exact")]),
    ),
    "LEDGER-8": (
        ("the vector of the next attempt is the same", [answer("exact"), *upload("x"), end("x", "cancelled"), *upload("y")]),
    ),
    "LEDGER-9": (
        ("a repeat of another attempt than the one that was summed",
         [answer("exact"), *upload("v"), end("v", "cancelled"), *upload("x"), end("x", survivors=ALL), begin("y", repeats="v")]),
        ("a cohort of fresh records after the sum", [*SUMMED, begin("y")]),
        ("after a lost sum", [answer("exact"), *upload("x"), end("x", "lost"), begin("y", repeats="x")]),
    ),
    "LEDGER-10": (
        ("data without ids are one record", [answer("exact", data="anonymous"), answer("other", data="b")]),
        ("in no noisy study", [answer("noisy", data="anonymous")]),
        ("while another record is reserved", [answer("exact"), answer("other", data="anonymous")]),
        ("after another record was marked as summed", [{"mark": "b"}, answer("exact", data="anonymous")]),
        ("counted data without ids leave no other record free",
         [answer("withholding", data="anonymous"), *upload("c", "withholding", step="count"), give_up("withholding"), answer("exact", data="b")]),
    ),
    "NOISE-2": (
        ("a reservation is charged at once", [answer("noisy"), answer("noisier")]),
        ("charges add up to the budget", [answer("noisier"), answer("noisier-again")]),
        ("another period of the question", [answer("noisy"), answer("noisy", "p2"), answer("noisy", "p3", "b")]),
        ("the unit is the member", [answer("per-member"), answer("per-member", "p2", "b")]),
        ("a refund takes a proof for every context",
         [answer("noisier"), *upload("x", "noisier", step="mean"), give_up("noisier"), answer("exact"), end("x", "erased"), answer("exact", "p2")]),
        ("a noisy run goes on after a mean without the member", [answer("noisier"), *upload("x", "noisier", step="mean"), end("x", survivors=OTHERS)]),
        ("nothing is refunded after a loss", [answer("noisier"), *upload("x", "noisier", step="mean"), end("x", "lost"), give_up("noisier"), answer("exact")]),
    ),
}  # fmt: skip


def case_of(steps: list[Json]) -> Json:
    """Return the input of a play with these steps; it names what they use."""
    used = {each[key] for each in steps for key in ("answer", "study", "give-up") if key in each}
    sources = {each[key] for each in steps for key in ("data", "mark") if key in each}
    return {
        "mu_budget": 2.0,
        "watch": [*WATCHED],
        "studies": {each: study(each) for each in sorted(used)},
        "data": {each: DATA[each] for each in sorted(sources)},
        "steps": steps,
    }


def plays() -> Iterator[Json]:
    """Yield each play as a case without its output."""
    for rule, told in PLAYS.items():
        for name, steps in told:
            yield {"name": name, "rule": rule, "function": "ledger", "input": case_of(steps)}
