import numpy as np
import pytest

from calibration import (
    ClassIndicator,
    ConfigMismatch,
    DenseBlock,
    FFCStatistics,
    HeadroomExceeded,
    IndicatorLattice,
    LabelOutOfRange,
    LatticeMismatch,
    Layout,
    LayoutMismatch,
    RecordsNotTracked,
    SumsLattice,
    indicator_classes,
    indicator_layout,
    lattice_from,
    solve_ffc,
)


def rows(count: int, dim: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim))


def statistics(labels: list[int], **settings: object) -> FFCStatistics:
    made = FFCStatistics(4, 5, normalise=True, **settings)  # type: ignore[arg-type]  # keywords of the test's own
    made.update(rows(len(labels)), np.array(labels))
    return made


def test_an_indicator_says_which_classes_are_held_and_nothing_of_how_many() -> None:
    one, many = statistics([0, 3]).indicator(), statistics([3, 0, 0, 3, 3, 0]).indicator()
    assert one.vector(IndicatorLattice()).tolist() == many.vector().tolist() == [1, 0, 0, 1, 0]
    assert (one.records, many.records) == (2, 6)
    assert one.layout == indicator_layout(5)
    assert (one.statistic, one.bias, one.withheld) == ("indicator", False, ())
    assert repr(one) == "<ClassIndicator of 5 classes>"


def test_its_vector_is_the_callers_own() -> None:
    indicator = statistics([0]).indicator()
    indicator.vector()[:] = 7
    assert indicator.vector().tolist() == [1, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        indicator.holds[0] = 2


def test_it_names_the_records_that_the_statistics_name() -> None:
    whole, without = statistics([0, 1, 2]), statistics([0, 1, 2], withheld=[1])
    for each in (whole, without):
        indicator = each.indicator()
        assert indicator.records_digest == whole.records_digest
        assert indicator.record_digests == whole.record_digests
        assert indicator.records == 3
        assert indicator.vector().tolist() == [1, 1, 1, 0, 0]


def test_statistics_without_records_have_no_indicator() -> None:
    with pytest.raises(RecordsNotTracked):
        statistics([0], track_records=False).indicator()


@pytest.mark.parametrize("settings", [{}, {"bias": True}])
def test_withheld_classes_are_in_no_sum(settings: dict[str, object]) -> None:
    labels = [0, 1, 2, 1, 3, 0, 1]
    there = statistics(labels, withheld={1, 3}, **settings)
    kept = [place for place, label in enumerate(labels) if label not in {1, 3}]
    plain = FFCStatistics(4, 5, normalise=True, **settings)  # type: ignore[arg-type]  # as above
    plain.update(rows(len(labels))[kept], np.array(labels)[kept])
    np.testing.assert_array_equal(there.V, plain.V)
    np.testing.assert_array_equal(there.U, plain.U)
    assert there.counts.tolist() == plain.counts.tolist() == [2, 0, 1, 0, 0]
    assert there.records == 3
    assert there.withheld == (1, 3)


def test_a_withheld_class_has_no_weights() -> None:
    weights = solve_ffc(statistics([0, 1, 2, 1, 0, 2], withheld=[2]), ridge=0.1).weights
    assert not weights[:, 2].any()
    assert weights[:, :2].any()


def test_a_batch_of_withheld_classes_alone_adds_nothing() -> None:
    there = statistics([1, 1], withheld=[1])
    assert there.records == 0
    assert not there.V.any()


def test_what_is_held_merges() -> None:
    first, second = statistics([0]), statistics([4])
    first.merge(second)
    assert first.indicator().vector().tolist() == [1, 0, 0, 0, 1]


def test_statistics_that_withhold_other_classes_do_not_merge() -> None:
    with pytest.raises(ConfigMismatch, match=r"withheld is \(1,\) here and \(\) there"):
        statistics([0], withheld=[1]).merge(statistics([0]))


@pytest.mark.parametrize("withheld", [[-1], [5], [0, 9]])
def test_only_classes_can_be_withheld(withheld: list[int]) -> None:
    with pytest.raises(LabelOutOfRange, match="classes to withhold are 0 to 4"):
        FFCStatistics(4, 5, withheld=withheld)


def test_an_indicator_takes_its_own_lattice_only() -> None:
    with pytest.raises(LatticeMismatch, match="an indicator goes on"):
        statistics([0]).indicator().vector(SumsLattice(20))  # type: ignore[arg-type]  # what is refused
    with pytest.raises(LatticeMismatch):
        lattice_from("indicator", 1)
    with pytest.raises(LatticeMismatch):
        IndicatorLattice(2)


def test_a_sum_of_indicators_counts_members() -> None:
    lattice = IndicatorLattice()
    assert [lattice.unit(degree) for degree in (0, 1, 2)] == [1, 1, 1]
    assert lattice.bound(10**9, 12) == 12
    lattice.check_headroom(8, 10**9, 127)
    with pytest.raises(HeadroomExceeded, match="a ring of 9 bits"):
        lattice.check_headroom(8, 10**9, 128)


def test_its_layout_is_one_block() -> None:
    assert indicator_classes(indicator_layout(7)) == 7
    for other in (Layout((DenseBlock("holds", (2, 3)),)), Layout((DenseBlock("n", (3,)),))):
        with pytest.raises(LayoutMismatch, match="not a layout of class indicators"):
            indicator_classes(other)
    with pytest.raises(LayoutMismatch):
        indicator_layout(0)


def test_any_truth_values_make_one() -> None:
    made = ClassIndicator([2, 0, True], 5, bytes(32), bytes(80))
    assert made.vector().tolist() == [1, 0, 1]
