"""The page that result files make: the same for the same files."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, stdev

from benchmarks.heads_table.claims import claims_of, leads_of
from benchmarks.heads_table.features import DATA, SEEDS
from benchmarks.heads_table.files import ResultFile
from benchmarks.heads_table.heads import EPSILONS, POSTERIOR

TITLES = {
    "digits": "digits, raw pixels",
    "fashion-random": "Fashion-MNIST, rectified random features",
    "fashion-cnn": "Fashion-MNIST, features of a CNN",
    "cifar-random": "CIFAR-10, rectified random features",
    "cifar-cnn": "CIFAR-10, features of a CNN",
}

HEAD = """# Every head on real features

Written by `make table` from the result files in `benchmarks/figures/heads-table`, which `make bench-table` makes; a test holds the page to them.
[Other heads](heads.md) has the formulas, [Differential privacy](privacy.md) the noise.

Five members hold each set of records, dealt by Dir(0.5) over classes. A coordinator process serves every round over HTTP, members of the SDK answer, verify the result and replay its
transcript. *Plain* is what follows from the members' sums in the clear, without ring or masks, each step of a chain of rounds resting on plain sums too. *Secure* is the head in the signed
result. Under ε (at δ = 10⁻⁵, for all rounds of the row together) members add their shares of noise; n = 5, n_min = 4 and a = 1, so the noise is √(5/3) times
what a trusted party would add. Accuracies are percent of the test records: means over seeds ± the sample's standard deviation. A seed decides the split, the extractor and who holds what;
the noise is fresh.

| features | made by |
|---|---|
| digits | scikit-learn's, 64 raw pixels |
| random | 64 random projections of the pixels, rectified |
| CNN | MOON's CNN with 64 features, trained by SphereFed for ten epochs on 10,000 images that no member holds |

CIFAR-10 is a pack of lossy JPEG. Members contribute nine tenths of their records.

Each column of ε says what all rounds of its row promise together. Unit columns follow from the head of FFC. Centred and random features spend a tenth of μ² on the records' mean. Random features are 512 without noise,
256 under it.
"""

ASKED = """LDA, class means and the posterior follow from a round of FFC that also releases counts, for 6 % more noise. [Differential privacy](privacy.md#the-other-questions) has CCVR without members, with no more noise than
needed.
"""

SAME = """## Secure equals plain

Of every exact round: whether the sum that came out of the masks is, bit for bit, the sum of the members' vectors; how far the head is from the plain one, max|W − W_plain| / max|W_plain|, the worst of all; and
what it cost. What is derived from FFC's round has its costs. CCVR's sums are the same as well, but its heads are retrained on draws of which, where features are not negative, the square root is taken: a root is
steep at 0, so the last bits of a sum show in W.
"""

NOISE = """## Shrinkage beside AdaSSP

The published head is solved by shrinkage. AdaSSP, with the smallest eigenvalue read off V̂, has the same noisy sums. Accuracy by shrinkage, and the points by which it is ahead; what is promised is
promised of FFC's head as it is, which has four rounds for each seed and ε.
"""

BESIDE = """## Beside FFC

Points by which each head is ahead of FFC's at the same ε, the mean over all sets of features and seeds.
"""

FILES = """## Result files

Each row of a file names the SHA-256 of the signed transcript of every round that led to it.
"""


def page_of(results: Sequence[ResultFile]) -> str:
    """The whole page."""
    if not results:
        return f"{HEAD}\nThere are no result files yet.\n"
    parts = [
        HEAD,
        _noised(results),
        "## What is promised\n",
        _promises(results),
        WHY,
        _still_missing(results),
    ]
    for data in DATA:
        own = [found for found in results if found.data == data]
        if own:
            parts += [
                f"## {TITLES[data]}\n",
                _described(own),
                _table(["head", "plain", "secure", *(f"ε = {e:g}" for e in EPSILONS)], _accuracies(own)),
                "",
            ]
    parts += [
        SAME,
        _table(
            [
                "head",
                "files",
                "sums the same",
                "W apart, at most",
                "predictions the same, at least",
                "kB sent by a member",
                "CPU s of a round",
            ],
            _compared(results),
        ),
        "",
    ]
    parts += [BESIDE, _table(["head", "exact", *(f"ε = {e:g}" for e in EPSILONS)], _beside_ffc(results)), ""]
    parts += [NOISE, _table(["features", "head", *(f"ε = {e:g}" for e in EPSILONS)], _leads(results)), ""]
    parts += [
        FILES,
        _table(
            ["file", "features' digest", "records of each member", "l", "tested", "rounds", "rows"],
            _files(results),
        ),
    ]
    return "\n".join(parts) + "\n"


def _noised(results: Sequence[ResultFile]) -> str:
    unasked = list(dict.fromkeys(head for found in results for head in found.without_noise))
    if not unasked:
        return ASKED
    return (
        f"Under noise these files do not have yet, where a column shows –: {'; '.join(unasked)}. `make bench-table` measures them through "
        "the same rounds; [Differential privacy](privacy.md#the-other-questions) says what most of them come to without members.\n"
    )


def _promises(results: Sequence[ResultFile]) -> str:
    rows = [
        [
            claim.round,
            claim.promise,
            f"{claim.measured:.3g}",
            f"{'≥' if claim.at_least else '≤'} {claim.limit:g}",
            "pass" if claim.kept else "**FAIL**",
        ]
        for claim in claims_of(results)
    ]
    return _table(["of", "promise", "measured", "limit", ""], rows)


WHY = """
Random features add a kernel, which helps where classes are bent around each other in feature space, as rectified pixels leave them. SphereFed trains a CNN until every class lies near a vector of its own: there all
heads, the nearest class mean among them, say nearly the same, a kernel adds nothing, little is left for noise to take, and no rule of solving is far ahead of another. Random features of so few directions make an
ill-conditioned system, in which a bandwidth and sums a rounding apart show most.
"""


def _still_missing(results: Sequence[ResultFile]) -> str:
    wanted = len(DATA) * len(SEEDS)
    if len(results) == wanted:
        return ""
    return (
        f"{len(results)} of {wanted} result files are there. With few of them a promise about noise hangs on few draws of it, "
        "and one about data that is not there is not listed.\n"
    )


def _described(own: Sequence[ResultFile]) -> str:
    first = own[0]
    seeds = "1 seed" if len(own) == 1 else f"{len(own)} seeds"
    return f"{sum(first.records):,} records, l = {first.dim}, {first.classes} classes, {first.tested:,} test records, {seeds}.\n"


def _accuracies(own: Sequence[ResultFile]) -> Iterator[list[str]]:
    rows = [row for found in own for row in found.rows]
    for head in dict.fromkeys(row.head for row in rows):
        cells = [("plain", None), ("secure", None), *(("secure", epsilon) for epsilon in EPSILONS)]
        yield [
            head,
            *(
                _spread([row.accuracy for row in rows if (row.head, row.path, row.epsilon) == (head, *cell)])
                for cell in cells
            ),
        ]


def _compared(results: Sequence[ResultFile]) -> Iterator[list[str]]:
    rows = [row for found in results for row in found.rows if row.path == "secure" and row.epsilon is None]
    for head in dict.fromkeys(row.head for row in rows):
        own = [row for row in rows if row.head == head]
        sent, cpu = [(row.upload_bytes or 0) / 1e3 for row in own], [row.cpu_s or 0.0 for row in own]
        yield [
            head,
            str(len(own)),
            "all" if all(row.same_sums for row in own) else f"{sum(bool(row.same_sums) for row in own)}",
            f"{max(row.off_by or 0.0 for row in own):.1e}" if any(row.off_by for row in own) else "0",
            f"{100 * min(row.agreement or 0.0 for row in own):.2f} %",
            _range(sent),
            _range(cpu, ".1f"),
        ]


def _leads(results: Sequence[ResultFile]) -> Iterator[list[str]]:
    leads, noisy = (
        leads_of(results),
        [(found.data, row) for found in results for row in found.rows if row.epsilon is not None],
    )
    for data in DATA:
        for head in dict.fromkeys(row.head for name, row in noisy if name == data and row.adassp is not None):
            cells = []
            for epsilon in EPSILONS:
                own = [
                    row.accuracy
                    for name, row in noisy
                    if (name, row.head, row.epsilon) == (data, head, epsilon)
                ]
                cells.append(f"{100 * mean(own):.1f} ({_signed(mean(leads[data, head, epsilon]))})")
            yield [TITLES[data], head, *cells]
    for head in dict.fromkeys(row.head for _, row in noisy if row.adassp is not None):
        yield [
            "mean of all",
            head,
            *(
                _signed(
                    mean(mean(lead) for (_, name, e), lead in leads.items() if (name, e) == (head, epsilon))
                )
                for epsilon in EPSILONS
            ),
        ]


def _beside_ffc(results: Sequence[ResultFile]) -> Iterator[list[str]]:
    found = [
        {(row.head, row.epsilon): row.accuracy for row in each.rows if row.path == "secure"}
        for each in results
    ]
    left_out = ("FFC", POSTERIOR)  # the half that is known best is no head
    for head in dict.fromkeys(head for head, _ in found[0] if head not in left_out):
        leads = [
            [100 * (each[head, epsilon] - each["FFC", epsilon]) for each in found if (head, epsilon) in each]
            for epsilon in (None, *EPSILONS)
        ]
        yield [head, *(_signed(mean(lead)) if lead else "–" for lead in leads)]


def _files(results: Sequence[ResultFile]) -> Iterator[list[str]]:
    for found in results:
        rounds = {transcript for row in found.rows for transcript in row.transcripts}
        yield [
            f"{found.data}-{found.seed}.json",
            f"`{found.features[:16]}`",
            ", ".join(map(str, found.records)),
            str(found.dim),
            str(found.tested),
            str(len(rounds)),
            str(len(found.rows)),
        ]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{100 * mean(values):.1f}" + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")


def _range(values: Sequence[float], form: str = ".0f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
