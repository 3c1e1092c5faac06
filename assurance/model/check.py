"""Check the models of the protocol exhaustively with Spin, then remove each rule and demand a counterexample.

    python -m assurance.model.check                      everything; writes runs/model-check.json
    python -m assurance.model.check --show VOTE_ONCE     the steps of the counterexample for one rule

Needs `spin` and `gcc` (apt-get install spin gcc). What is modelled and what is not: assurance/model/README.md.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from assurance.reports import report

HERE = Path(__file__).parent
OUTPUT = Path("runs/model-check.json")
MEMORY_MIB = 4000
DEPTH = 10_000
TIMEOUT_S = 600


class CheckError(Exception):
    """A model's property fails, a rule's removal goes undetected, or a search was not finished."""


@dataclass(frozen=True)
class Search:
    """One configuration of one model.

    Attributes:
        name: as in assurance/model/README.md.
        model: the file's name without its suffix.
        constants: macros.
        eventually: search for runs that never end (LTL), not only for states that violate an assertion or get stuck.
        long: whether an optimised build pays off. For searches that stop early, it takes longer than the search.
    """

    name: str
    model: str
    constants: dict[str, int]
    eventually: bool = False
    long: bool = False

    def without(self, *rules: str) -> "Search":
        """Return this search with these rules removed."""
        removed = {f"RULE_{rule}": 0 for rule in rules}
        return Search(self.name, self.model, {**self.constants, **removed}, self.eventually)

    def witness(self, number: int) -> "Search":
        """Return this search with an end declared impossible that a meaningful model reaches."""
        return Search(self.name, self.model, {**self.constants, "WITNESS": number})


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        states: stored states; all states if nothing was violated.
        transitions: taken transitions.
        depth: longest run without a repetition, in steps.
        memory_mib: used memory.
        seconds: duration of the search, without compiling.
        violated: the violated property, or None.
    """

    states: int
    transitions: int
    depth: int
    memory_mib: float
    seconds: float
    violated: str | None


ATTEMPT = Search("one attempt", "secrecy", {"ATTEMPTS": 1, "REPORTS": 1}, long=True)
RETRY = Search("attempt and retry", "secrecy", {"ATTEMPTS": 2, "REPORTS": 1}, long=True)
ANY_TIME = Search("any time", "progress", {"PATIENT": 0, "LOSSES": 2}, eventually=True, long=True)
PATIENT = Search("patient", "progress", {"PATIENT": 1, "LOSSES": 2})
SPENDING = Search("four runs", "spending", {"RUNS": 4, "CONTEXTS": 4, "COUNTING": 1}, long=True)
THREE_RUNS = Search("three runs", "spending", {"RUNS": 3, "CONTEXTS": 3, "COUNTING": 1})
SUMS_ALONE = Search("three runs, no counts", "spending", {"RUNS": 3, "CONTEXTS": 3, "COUNTING": 0})


def _pairing(
    name: str, *, least: int, cards: int = 1, crashes: int = 0, enters: int = 1, long: bool = False
) -> Search:
    """Return a search of pairing with a hostile coordinator: see the macros in pairing.pml."""
    constants = {"HOSTILE": 1, "LEAST": least, "CARDS": cards, "CRASHES": crashes, "ENTERS": enters}
    return Search(name, "pairing", constants, long=long)


def _windows(
    name: str,
    *,
    patient: int,
    losses: int,
    restarts: int,
    failures: int,
    eventually: bool = False,
    long: bool = False,
) -> Search:
    """Return a search of pairing with a coordinator that keeps to the protocol."""
    constants = {
        "HOSTILE": 0,
        "LEAST": 2,
        "PATIENT": patient,
        "LOSSES": losses,
        "RESTARTS": restarts,
        "FAILURES": failures,
    }
    return Search(name, "pairing", constants, eventually, long)


PAIRING_CRASHES = _pairing("pairing, crashes", least=2, crashes=1, long=True)
PAIRING_CARDS = _pairing("pairing, two cards", least=2, cards=2, long=True)
PAIRING = _pairing("pairing", least=2)
PAIRING_FOUR = _pairing("pairing, down to one member", least=1)
PAIRING_UNENTERED = _pairing("pairing, no member entered", least=2, enters=0)
ANY_WINDOW = _windows(
    "windows, any time", patient=0, losses=0, restarts=1, failures=1, eventually=True, long=True
)
PATIENT_WINDOWS = _windows("windows, patient", patient=1, losses=2, restarts=2, failures=3, long=True)
TWO_VANISH = _windows("windows, two vanish", patient=1, losses=1, restarts=1, failures=2)

FULL = (
    ATTEMPT,
    RETRY,
    ANY_TIME,
    PATIENT,
    SPENDING,
    PAIRING_CRASHES,
    PAIRING_CARDS,
    ANY_WINDOW,
    PATIENT_WINDOWS,
)
SMALLEST = Search("one attempt, no reports", "secrecy", {"ATTEMPTS": 1, "REPORTS": 0})
SMALLEST_SPENDING = Search("two runs", "spending", {"RUNS": 2, "CONTEXTS": 2, "COUNTING": 1})
SMALLEST_PAIRING = _pairing("pairing, two manifests", least=3)
SMALLEST_WINDOWS = _windows("windows, one vanishes", patient=1, losses=1, restarts=0, failures=1)

ENDS, ERASURE = "P5_the_attempt_ends", "P7_no_sum_beside_an_erasure"
STUCK = {"progress": ENDS, "pairing": "K6_pairing_ends"}
"""For each model that must end: the property that a run which gets stuck or never ends violates."""

ONE_SUM, FREE, ONE_COUNT = (
    "S1_one_sum_of_a_record",
    "S3_a_free_record_is_in_no_open_sum",
    "S5_a_run_counts_once",
)
EQUAL, ONE_PAIRING, NOTHING_LEFT, FEWER, OTHERS_READY, RECORDING = (
    "K1_equal_keys",
    "K3_one_pairing_a_manifest",
    "K4_nothing_is_left",
    "K5_three_manifests_each_of_fewer",
    "K6_the_others_become_ready",
    "K7_a_recording_opens_nothing",
)
RULES: dict[str, tuple[Search, str]] = {
    "2T_ABOVE_L_PLUS_A": (ATTEMPT, "P3_one_certificate"),
    "N_MIN": (ATTEMPT, "P1_one_secret_of_a_member"),
    "VOTE_ONCE": (ATTEMPT, "P3_one_certificate"),
    "VOID_EXCLUSIVE": (ATTEMPT, "P3_one_certificate"),
    "STORE_BEFORE_SENDING": (ATTEMPT, ERASURE),
    "SHOWN_UPLOADS": (ATTEMPT, "P4_the_sum_is_over_the_certified"),
    "CERTIFICATE_THRESHOLD": (ATTEMPT, "P2_reveals_follow_a_certificate"),
    "CERTIFICATE_DISTINCT": (ATTEMPT, "P2_reveals_follow_a_certificate"),
    "CERTIFICATE_ONE_OUTCOME": (ATTEMPT, "P6_nothing_after_the_end"),
    "CONTEXT_BINDING": (RETRY, "P2_reveals_follow_a_certificate"),
    "REVEAL_AFTER_CERTIFICATE": (ATTEMPT, "P2_reveals_follow_a_certificate"),
    "DUE_FROM_CERTIFICATE": (ATTEMPT, "P1_one_secret_of_a_member"),
    "PROOF_SHARES_COMMITTED": (ATTEMPT, "P1_one_secret_of_a_member"),
    "PROOF_HOLDERS": (ATTEMPT, "P1_one_secret_of_a_member"),
    "PROOF_MISSES": (ATTEMPT, "P1_one_secret_of_a_member"),
    "RESULT_FROM_CERTIFICATE": (ATTEMPT, "P4_the_sum_is_over_the_certified"),
    "VOID_BY_CERTIFICATE": (ATTEMPT, "P6_nothing_after_the_end"),
    "RETRY_AFTER_VOID": (RETRY, "P3_one_certificate"),
    "CLOSED_IS_FINAL": (ATTEMPT, "P6_nothing_after_the_end"),
    "REPORT_IS_FINAL": (ATTEMPT, ERASURE),
    "REPORT_TELLS": (ATTEMPT, ERASURE),
    "BEHIND_IS_REFUSED": (ATTEMPT, ERASURE),
    "ERASURE_QUORUM": (ATTEMPT, ERASURE),
    "COUNT_ONCE": (PATIENT, "P2_a_certificate_has_t_votes"),
    "ANSWER_AGAIN": (PATIENT, "P5_the_attempt_gives_a_result"),
    "TIME_RUNS_OUT": (PATIENT, ENDS),
    "DROP_DISPUTED": (PATIENT, "P5_the_attempt_gives_a_result"),
    "LATE_RECEIPTS": (PATIENT, "P5_the_attempt_gives_a_result"),
    "DISPUTES_AMONG_SURVIVORS": (PATIENT, "P5_the_attempt_gives_a_result"),
    "EVICT": (PATIENT, "P5_the_attempt_gives_a_result"),
    "LOST_IS_CLOSED": (ANY_TIME, ENDS),
    "CERTIFIED_IS_CLOSED": (ANY_TIME, ENDS),
    "REPORT_IN_ANY_PHASE": (ANY_TIME, ENDS),
    "ENDS_BEFORE_UPLOAD": (SUMS_ALONE, ONE_SUM),
    "LEDGER_BEFORE_UPLOAD": (THREE_RUNS, FREE),
    "ALREADY_SUMMED": (THREE_RUNS, ONE_COUNT),
    "GIVEN_UP_FOR_GOOD": (THREE_RUNS, FREE),
    "VOID_ALONE_FREES_NOTHING": (THREE_RUNS, FREE),
    "EVERY_CONTEXT": (THREE_RUNS, FREE),
    "TIME_FREES_NOTHING": (THREE_RUNS, FREE),
    "LINKS_FREE_NOTHING": (THREE_RUNS, FREE),
    "PROOF_OF_ITS_CONTEXT": (THREE_RUNS, FREE),
    "A_SET_WITH_IT_SPENDS": (THREE_RUNS, FREE),
    "LOST_SPENDS": (THREE_RUNS, FREE),
    "SUMS_ALONE_SPEND": (THREE_RUNS, "S4_a_count_spends_nothing"),
    "COUNTS_HOLD_NOTHING": (THREE_RUNS, "S6_a_run_that_ended_is_free"),
    "THREE_COUNTS": (SPENDING, "S2_three_runs_count_a_record"),
    "COUNTED_FROM_UPLOAD": (SPENDING, "S2_three_runs_count_a_record"),
    "PAIRING_STORED_FIRST": (PAIRING, ONE_PAIRING),
    "PAIRING_KEPT": (PAIRING, ONE_PAIRING),
    "PAIRING_SENT_AGAIN": (TWO_VANISH, OTHERS_READY),
    "FRESH_FOR_EACH": (PAIRING, RECORDING),
    "CARD_SIGNED": (PAIRING, RECORDING),
    "KEY_OF_ITS_CARD": (PAIRING, RECORDING),
    "CIPHERTEXT_SIGNED": (PAIRING, RECORDING),
    "CIPHERTEXT_OF_ITS_SENDER": (PAIRING, RECORDING),
    "CIPHERTEXT_OF_ITS_MANIFEST": (PAIRING, EQUAL),
    "CIPHERTEXT_OF_ITS_PLACE": (PAIRING, EQUAL),
    "EVERY_CIPHERTEXT": (PAIRING, EQUAL),
    "FORMER_MEMBERS": (PAIRING, FEWER),
    "CARDS_UNCHANGED": (PAIRING_CARDS, FEWER),
    "THIRD_AT_MOST": (PAIRING_FOUR, FEWER),
    "ERASED_WITH_KEYS": (PAIRING, NOTHING_LEFT),
    "FORMER_SECRETS": (PAIRING, NOTHING_LEFT),
    "LAPSE": (ANY_WINDOW, STUCK["pairing"]),
    "LAPSE_ERASES": (PAIRING, NOTHING_LEFT),
    "CLOCK_FIRST": (PAIRING, "K4_lapsed_is_final"),
    "ALL_PAIRED_FIRST": (TWO_VANISH, "K6_all_have_paired"),
    "NEWEST_PAIRINGS": (TWO_VANISH, OTHERS_READY),
    "WINDOW_ENDS": (TWO_VANISH, OTHERS_READY),
    "LEFT_OUT": (TWO_VANISH, OTHERS_READY),
    "NEXT_CARDS": (TWO_VANISH, OTHERS_READY),
    "TIME_FOR_THREE": (TWO_VANISH, OTHERS_READY),
}
"""Each rule with the search that must fail without it, and the property that fails."""

IN_DEPTH = {
    "OWN_UPLOAD": ATTEMPT,
    "ENDS_BEFORE_OPENING": THREE_RUNS,
    "LEDGER_BEFORE_OPENING": THREE_RUNS,
    "SPENT_IS_FINAL": THREE_RUNS,
    "SUMMED_ELSEWHERE": THREE_RUNS,
    "RESERVE_FREE_RECORDS": THREE_RUNS,
    "OWN_CARD": PAIRING,
    "READY_IS_FINAL": PAIRING,
    "LAPSED_IS_FINAL": PAIRING,
}
"""Rules that a single other rule makes redundant here: without them the model still holds."""

PAIRS: dict[tuple[str, str], tuple[Search, str]] = {
    ("SPENT_IS_FINAL", "ALREADY_SUMMED"): (SUMS_ALONE, ONE_SUM),
    ("SUMMED_ELSEWHERE", "RESERVE_FREE_RECORDS"): (SUMS_ALONE, ONE_SUM),
    ("READY_IS_FINAL", "ERASED_WITH_KEYS"): (PAIRING_UNENTERED, "K2_one_manifest_has_keys"),
    ("LAPSED_IS_FINAL", "LAPSE_ERASES"): (PAIRING_UNENTERED, "K4_lapsed_is_final"),
}
"""Rules that guard the same property, so that it fails only without both."""

WITNESSES: dict[str, tuple[Search, int]] = {
    "the retry of a VOID attempt gives the sum of all": (RETRY, 1),
    "the sum without a lost member is unmasked": (ATTEMPT, 2),
    "an Erasure beside a certificate": (ATTEMPT, 3),
    "an attempt ends in a sum": (ANY_TIME, 7),
    "an attempt ends certified and without a sum": (ANY_TIME, 8),
    "an attempt ends in VOID": (ANY_TIME, 9),
    "an attempt ends in Lost": (ANY_TIME, 10),
    "a record that three runs counted is summed": (SPENDING, 1),
    "a record freed by an Erasure is summed in the next run": (THREE_RUNS, 2),
    "a run whose sum ended in VOID is summed": (THREE_RUNS, 3),
    "a Lost spends a record that is in no sum": (THREE_RUNS, 4),
    "two members are ready under their third manifest": (PAIRING, 1),
    "three members are ready under three manifests": (PAIRING, 2),
    "two members are ready under a manifest under which a third paired and lapsed": (PAIRING, 3),
    "two of four are ready in the third window": (TWO_VANISH, 4),
    "a cohort fails": (PATIENT_WINDOWS, 5),
    "the others are ready after a member paired and vanished": (TWO_VANISH, 6),
}
"""Ends that the full models must reach: a model in which nothing happens would keep every property."""


def missing_tools() -> list[str]:
    """Return the required programs that are missing."""
    return [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise CheckError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def _defines(search: Search) -> list[str]:
    return [f"-D{name}={value}" for name, value in {"WITNESS": 0, **search.constants}.items()]


@contextmanager
def searched(search: Search) -> Iterator[tuple[Path, Found]]:
    """Compile a search and run it; the folder holds the model, and the trail if there is one."""
    with tempfile.TemporaryDirectory(prefix="model-") as name:
        folder = Path(name)
        model = f"{search.model}.pml"
        for source in (model, "rules.h"):
            shutil.copy(HERE / source, folder)
        _run(folder, "spin", *_defines(search), "-a", model)
        # Every state is stored whole: no bitstate hashing, no hash compaction. The processes share their whole
        # state, so partial-order reduction would have no effect.
        options = ["-DNOREDUCE", f"-DMEMLIM={MEMORY_MIB}"]
        options += [] if search.eventually else ["-DSAFETY", "-DNOCLAIM"]
        _run(folder, "gcc", "-O1" if search.long else "-O0", "-w", *options, "-o", "pan", "pan.c")
        started = monotonic()
        report = _run(
            folder, "nice", "-n", "10", "./pan", f"-m{DEPTH}", *(["-a"] if search.eventually else [])
        )
        yield folder, read_report(search, report, monotonic() - started)


def read_report(search: Search, report: str, seconds: float) -> Found:
    """Read the verifier's report.

    Raises:
        CheckError: if the search stopped early without a counterexample.
    """

    def number(pattern: str) -> float:
        [value] = re.findall(pattern, report)
        return float(value)

    errors = number(r"errors: (\d+)")
    if not errors and re.search(r"not completed|max search depth|MEMLIM|out of memory", report):
        raise CheckError(f"{search.name}: the search did not see every state:\n{report}")
    broken = re.search(r"assertion violated (?:\(?(\w+))", report)
    stuck = re.search(r"invalid end state \(|acceptance cycle \(", report)
    if errors and not (broken or (stuck and search.model in STUCK)):
        raise CheckError(f"{search.name}: an error of no kind that is known:\n{report}")
    return Found(
        states=int(number(r"(\d+(?:\.\d+e\+\d+)?) states, stored")),
        transitions=int(number(r"(\d+(?:\.\d+e\+\d+)?) transitions")),
        depth=int(number(r"depth reached (\d+)")),
        memory_mib=number(r"([\d.]+)\s+total actual memory usage"),
        seconds=round(seconds, 1),
        violated=(broken[1] if broken else STUCK[search.model]) if errors else None,
    )


def check(search: Search, violated: str | None) -> Found:
    """Run a search, and demand that it violates this property, or none.

    Raises:
        CheckError: if the result differs.
    """
    with searched(search) as (_, found):
        if found.violated != violated:
            raise CheckError(
                f"{search.name} {search.constants}: {found.violated or 'nothing'} is violated, not {violated or 'nothing'}"
            )
        return found


def check_all() -> dict[str, object]:
    """Run every search, removal and witness; return the content of runs/model-check.json."""
    full, removed, in_depth, pairs, witnesses = [], [], [], [], []
    for search in FULL:
        found = check(search, None)
        full.append({"search": search.name, "model": search.model, **asdict(found)})
        _say(f"{search.name}: holds", found)
    for rule, (search, expected) in RULES.items():
        found = check(search.without(rule), expected)
        removed.append({"rule": rule, "search": search.name, **asdict(found)})
        _say(f"without {rule}: {expected}", found)
    for rule, search in IN_DEPTH.items():
        found = check(search.without(rule), None)
        in_depth.append({"rule": rule, "search": search.name, **asdict(found)})
        _say(f"without {rule}: holds, another rule does the same", found)
    for both, (search, expected) in PAIRS.items():
        found = check(search.without(*both), expected)
        pairs.append({"rules": both, "search": search.name, **asdict(found)})
        _say(f"without {' and '.join(both)}: {expected}", found)
    for what, (search, witness) in WITNESSES.items():
        found = check(search.witness(witness), "unreached")
        witnesses.append({"reached": what, "search": search.name, **asdict(found)})
        _say(f"reached: {what}", found)
    return {
        "spin": _run(HERE, "spin", "-V").strip(),
        "full": full,
        "removed": removed,
        "in_depth": in_depth,
        "pairs": pairs,
        "witnesses": witnesses,
    }


def _say(what: str, found: Found) -> None:
    sys.stdout.write(
        f"{what:68} {found.states:>10,} states {found.memory_mib:>6.0f} MiB {found.seconds:>6.1f} s\n"
    )
    sys.stdout.flush()


def show(rule: str) -> None:
    """Print the counterexample that a rule's removal allows."""
    search, _ = RULES[rule]
    with searched(search.without(rule)) as (folder, found):
        report = _run(folder, "spin", *_defines(search.without(rule)), "-t", f"{search.model}.pml")
        steps = [line.strip() for line in report.splitlines() if re.match(r"\s+(member|message|the) ", line)]
        sys.stdout.write("\n".join([*steps, f"violated: {found.violated}", ""]))


def main() -> int:
    """Check everything, or show one counterexample; return exit status 1 if something fails."""
    parser = argparse.ArgumentParser(description="Check the models of the protocol with Spin.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where to write the figures")
    parser.add_argument("--show", choices=sorted(RULES), metavar="RULE", help="print a counterexample")
    options = parser.parse_args()
    if missing := missing_tools():
        sys.stderr.write(f"{' and '.join(missing)} not found: apt-get install {' '.join(missing)}\n")
        return 1
    try:
        if options.show:
            show(options.show)
            return 0
        started = monotonic()
        figures = check_all()
    except CheckError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    report({**figures, "seconds": round(monotonic() - started, 1)}, options.output, sound=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
