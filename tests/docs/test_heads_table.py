"""The page of heads on real features is what its result files give, and every file names the rounds that it came from."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.heads_table.__main__ import is_whole
from benchmarks.heads_table.claims import claims_of, leads_of
from benchmarks.heads_table.features import load_features
from benchmarks.heads_table.federation import Coordinator, Federation
from benchmarks.heads_table.files import RESULTS, ResultFile, read_results
from benchmarks.heads_table.heads import DRAWS, EPSILONS, Compared, Row
from benchmarks.heads_table.page import page_of

PAGE = Path(__file__).parents[2] / "docs/heads-table.md"
HASH = re.compile(r"[0-9a-f]{64}")


def test_the_page_is_what_the_result_files_give() -> None:
    assert PAGE.read_text("utf-8") == page_of(read_results()), "run make table"


def test_result_files_name_their_features_and_every_round() -> None:
    for path in RESULTS.glob("*.json"):
        found = ResultFile.read(path)
        assert path == ResultFile.path(RESULTS, found.data, found.seed)
        assert HASH.fullmatch(found.features)
        secure = [row for row in found.rows if row.path == "secure"]
        assert all(row.transcripts and all(map(HASH.fullmatch, row.transcripts)) for row in secure)
        plain = [row.head for row in found.rows if row.path == "plain"]
        assert [row.head for row in secure if row.epsilon is None] == plain
        noisy = [(row.head, row.epsilon) for row in secure if row.epsilon is not None]
        heads = list(dict.fromkeys(head for head, _ in noisy))
        assert list(dict.fromkeys(noisy)) == [(head, epsilon) for epsilon in EPSILONS for head in heads]
        assert [noisy.count(("FFC", epsilon)) for epsilon in EPSILONS] == [DRAWS] * len(EPSILONS)


def test_result_files_have_noise_on_the_same_heads() -> None:
    """So that all are of one state of the benchmark."""
    assert len({found.without_noise for found in read_results()}) == 1


def found_with(*rows: Row) -> ResultFile:
    return ResultFile("fashion-random", 0, "0" * 64, (4, 4, 4), 2, 2, 10, "nowhere", rows)


EXACT = Row(
    head="FFC",
    path="secure",
    accuracy=0.8,
    off_by=1e-9,
    agreement=1.0,
    same_sums=True,
    transcripts=("0" * 64,),
)
NOISY = Row(head="FFC", path="secure", accuracy=0.7, epsilon=1.0, adassp=0.675, transcripts=("0" * 64,))
KERNEL = replace(EXACT, head="random features", accuracy=0.81)
EVERY = tuple(replace(NOISY, epsilon=epsilon) for epsilon in EPSILONS)


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({}, set()),
        ({0: replace(EXACT, same_sums=False)}, {0}),
        ({0: replace(EXACT, off_by=2e-6)}, {1}),
        ({3: replace(EXACT, head="CCVR", agreement=0.9)}, {2}),
        ({1: replace(NOISY, adassp=0.69)}, {3}),
        ({1: replace(NOISY, epsilon=8.0, adassp=0.71)}, {4}),
        ({2: replace(KERNEL, accuracy=0.805)}, {5}),
    ],
)  # fmt: skip
def test_each_promise_breaks_by_itself(changed: dict[int, Row], broken: set[int]) -> None:
    strong = replace(NOISY, epsilon=0.5)
    rows = {
        0: EXACT,
        1: NOISY,
        2: KERNEL,
        3: replace(EXACT, head="CCVR", off_by=0.1),
        4: strong,
    }
    claims = claims_of([found_with(*{**rows, **changed}.values())])
    assert {number for number, claim in enumerate(claims) if not claim.kept} == broken


def test_leads_are_of_every_round_of_every_seed() -> None:
    worse = replace(NOISY, adassp=0.7)
    found = [found_with(EXACT, KERNEL, NOISY, NOISY), found_with(EXACT, KERNEL, worse)]
    assert leads_of(found)["fashion-random", "FFC", 1.0] == pytest.approx([2.5, 2.5, 0])
    least = next(claim for claim in claims_of(found) if "where it is least" in claim.promise)
    assert least.measured == pytest.approx(5 / 3)
    assert "(standard error 0.83)" in least.promise


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = found_with(EXACT, NOISY, replace(KERNEL, accuracy=0.5))
    found.write(tmp_path)
    assert read_results(tmp_path) == [found]


def test_a_head_without_noise_is_named_and_its_file_is_run_again(tmp_path: Path) -> None:
    lacking = found_with(EXACT, KERNEL, *EVERY)
    assert lacking.without_noise == ("random features",)
    assert "where a column shows –: random features." in page_of([lacking])
    lacking.write(tmp_path)
    path = ResultFile.path(tmp_path, lacking.data, lacking.seed)
    assert not is_whole(path, lacking.features)
    asked = found_with(EXACT, KERNEL, *EVERY, replace(NOISY, head="random features", adassp=None))
    assert "files do not have" not in page_of([asked])
    asked.write(tmp_path)
    assert is_whole(path, asked.features)
    assert not is_whole(path, "of features that are made another way")


def test_without_files_the_page_says_so() -> None:
    assert "no result files yet" in page_of([])


@pytest.mark.slow
def test_a_round_over_http_says_what_plain_sums_say(tmp_path: Path) -> None:
    features = load_features("digits", 0, tmp_path, None)
    with Coordinator(tmp_path) as coordinator, Federation(features, coordinator, tmp_path) as federation:
        compared = Compared(features, federation)
        plain, secure = compared._pair("FFC", compared._both("ffc"))
    assert secure.same_sums
    assert secure.off_by is not None
    assert secure.off_by < 1e-6
    assert secure.accuracy == plain.accuracy
    assert secure.accuracy > 0.9
    assert secure.upload_bytes is not None
    assert secure.upload_bytes > 2080 * 6
