from tests.texts.scenes import FILE, render


def test_the_file_holds_what_people_are_told() -> None:
    assert render() == FILE.read_text("utf-8"), "run python -m tests.texts.scenes, and read the difference"
