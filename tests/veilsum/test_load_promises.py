"""What `benchmarks.load` holds a full load against."""

from benchmarks.load import promises


def test_a_full_load_is_held_against_speed_and_memory() -> None:
    assert promises(40, 0.5, 0.1, 500.0) == []
    assert [each["kept"] for each in promises(100, 40.0, 0.35, 306.0)] == [True, True]
    speed, memory = promises(100, 40.0, 0.12, 773.5)
    assert (speed["kept"], memory["kept"], memory["at_most"]) == (False, False, 307)
