"""Classes that few members hold, from the admin's draft to the head's file, by commands alone."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibration import Head
from calibration.head_file import Calibrated
from client_sdk import Identity, Member, Policy
from protocol.errors import PeerFault
from protocol.published import RareView
from protocol.rest import HEAD, RoundRequest
from tests.veilsum.cli import CLASSES, DIM, EXTRACTOR, TOKEN, Cli, Consortium, uploaded
from veilsum.calibrating.findings import Findings
from veilsum.calibrating.order import judged
from veilsum.opening import open_in_turn
from veilsum.rare import PUBLISHED, rare_classes
from veilsum.remote import changes, operator

Make = Callable[..., Consortium]


def without_class_2(c: Consortium) -> None:
    """The first member holds no record of the last class: two of three do, and m = g = 3."""
    with np.load(c.files[0]) as data:
        kept = data["labels"] < 2
        c.files[0] = c.write("m0", data["features"][kept], data["labels"][kept])


def test_one_command_each_counts_and_withholds(consortium: Make, remote: Cli) -> None:
    c = consortium(withhold=True)
    without_class_2(c)
    joining = [c.join(member) for member in c.members[:2]]
    head = c.folder / "head.safetensors"
    words = c.words("m2", "--output", head, "--held-out", c.test, "--json")
    joining.append(c.later("calibrate", c.files[2], *words_of(words), "--folder", c.folder / "m2"))
    c.formed()
    dry = remote.at("operator", "round", "open", c.cohort, *terms(), "--dry-run")
    count, main = remote.operate(*dry)["would_open"]
    assert (count["terms"]["statistic"], count["counts_first"]) == ("indicator", False)
    assert (main["terms"]["statistic"], main["counts_first"]) == ("ffc", True)
    asking = remote.operate(*dry, "--heard-within", 3600)["would_open"]  # of the count too
    assert [each["decryptors"]["within_s"] for each in asking] == [3600] * 2
    said = remote(*dry, "--token", TOKEN).out
    assert said.count("A round that was not opened") == 2
    assert (
        f"cost             {main['cost']}\nverdict          it would be opened after a round that counts"
        in said
    )
    assert remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"] == []
    opened = remote(*remote.at("operator", "round", "open", c.cohort, *terms()), "--token", TOKEN)
    assert opened.code == 0, opened
    assert "counting, collecting: " in opened.err
    assert "withheld     2\ncounted in   round " in opened.out
    first, second, third = (future.result(120) for future in joining)
    said = (
        "withheld, for fewer than m = 3 members hold them (3 and a margin of 0 for members that may be missing): "
        "2 (held by 2)"
    )
    for outcome in (first, second):
        assert outcome.code == 0, outcome
        assert said in outcome.out
        assert "counting, checking how many members hold each class" in outcome.err
    assert third.code == 0, third
    assert third.values["rare_classes"] == said
    assert (third.values["withheld"], third.values["never_answers"]) == ([2], [2])
    # a third of the test records are of the class that it never answers
    assert third.values["accuracy"] <= 2 / 3 < third.values["accuracy_without_withheld"]
    assert not load_file(head)["weights"][:, 2].any()
    assert load_file(head)["weights"].shape == (DIM, CLASSES)
    assert metadata(head) == {
        "classes_without_records": [2],
        "withheld": [2],
        "form": {"kind": "linear"},
    }
    indicator, main = remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"]
    counts = remote(*remote.at("operator", "round", "status", indicator))
    assert "class 0: 3, class 1: 3, class 2: 2\n" in counts.out
    assert "`veilsum operator round open` opens the round that withholds by it" in counts.out
    shown = remote(*remote.at("operator", "round", "result", main))
    assert f"rare classes             {said}" in shown.out
    assert "classes without records  2" in shown.out
    record = remote.json(*remote.at("operator", "round", "result", main))
    assert record["rare"] == {
        "indicator": remote.json(*remote.at("operator", "round", "status", indicator))["context"],
        "margin": 0,
        "floor": 3,
        "holders": [3, 3, 2],
    }
    assert remote("verify", c.folder / "m0" / "result", "--admin-key", c.admin).code == 0


def words_of(join: tuple[object, ...]) -> tuple[object, ...]:
    """`member join`'s options, without its folder, as `calibrate` takes them."""
    options = list(join[3:])
    at = options.index("--features")
    return (*options[:at], *options[at + 2 :])


def terms(*more: object) -> tuple[object, ...]:
    return ("--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR, "--grace-s", 0.05, *more)


def metadata(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    found: dict[str, Any] = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"][HEAD])
    return found


def test_an_interrupted_command_goes_on_with_the_count_under_way(consortium: Make, remote: Cli) -> None:
    c = consortium(withhold=True)
    joining = [c.join(member, "--json") for member in c.members]
    c.formed()
    request = RoundRequest.model_validate(
        {"dim": DIM, "classes": CLASSES, "extractor": EXTRACTOR, "windows": {"grace_s": 0.05}}
    )

    class Interrupted(Exception):  # noqa: N818 - the operator's Ctrl-C
        pass

    def interrupt(_view: object) -> None:
        raise Interrupted

    with operator(remote.url, TOKEN) as client, pytest.raises(Interrupted):
        open_in_turn(client, c.cohort, request, tell=interrupt)
    more = request.model_copy(update={"classes": CLASSES + 1})
    with (
        operator(remote.url, TOKEN) as client,
        pytest.raises(PeerFault, match=r"^(conflict|terms-refused): "),
    ):
        open_in_turn(client, c.cohort, more, tell=interrupt)
    main = c.open()
    reports = [future.result(120) for future in joining]
    assert {report.values["round"] for report in reports} == {main}
    assert reports[0].values["rare_classes"] == (
        "none withheld: each class is held by m = 3 members or more "
        "(3 and a margin of 0 for members that may be missing)"
    )
    # counts on which a result rests are taken again for the next round, and so are others if the operator says so
    rounds = remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"]
    assert len(rounds) == 2
    joining = [c.join(member, "--json") for member in c.members]
    again = c.open()
    assert {future.result(120).values["round"] for future in joining} == {again}
    assert len(remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"]) == 4


def test_a_count_that_comes_to_nothing_is_shown_and_no_round_follows(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = consortium(withhold=True)
    joining = [c.join(member) for member in c.members[:2]]
    identity = Identity.load(c.folder / "m2")
    with Member(remote.url, identity, None, Policy(admin_key=c.admin)) as away:
        away.enrol(c.cohort)
    opening = c.later(*remote.at("operator", "round", "open", c.cohort, *terms()), "--token", TOKEN)
    with operator(remote.url, TOKEN) as client:
        views = changes(lambda after: client.cohort(c.cohort, after))
        while not (rounds := next(views).rounds):
            pass
        uploaded(remote.url, rounds[0], 2)
        client.cancel(rounds[0], "a test")
    ended = opening.result(120)
    assert ended.code == 1
    assert re.search(r"^state +voided$", ended.out, re.MULTILINE)
    assert "cancelled: a test" in ended.out
    for future in joining:
        assert future.result(120).code == 1
    assert remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"] == [rounds[0]]
    with operator(remote.url) as client:
        lost = client.round(rounds[0]).model_copy(update={"state": "erasing", "ended": False})
    monkeypatch.setattr("veilsum.opening.open_in_turn", lambda *_words, **_more: lost)
    assert remote(*remote.at("operator", "round", "open", c.cohort, *terms()), "--token", TOKEN).code == 1


def test_an_exception_goes_to_the_round_of_its_sequence(
    consortium: Make, remote: Cli, tmp_path: Path
) -> None:
    c = consortium(withhold=True)
    joining = [c.join(member, "--json", "--accept-exceptions") for member in c.members]
    c.formed()
    files = []
    for sequence in (0, 1):
        files.append(tmp_path / f"exception-{sequence}.bin")
        words = ("admin", "exception", c.cohort, "--member", "m0", "--reason", "a test")
        folder = ("--folder", c.folder / "admin", "--output", files[-1], "--sequence", sequence)
        remote.json(*remote.at(*words, *folder))
    main = c.open("--exception", files[0], "--exception", files[1])
    assert {future.result(120).values["round"] for future in joining} == {main}
    indicator, _ = remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"]
    with operator(remote.url) as client:
        for sequence, round_id in enumerate((indicator, main)):
            (exception,) = client.opening(round_id).exceptions
            assert exception.sequence == sequence


def test_in_words() -> None:
    rare = RareView(indicator="ab" * 32, margin=2, floor=8, holders=(12, 3, 0))
    assert rare_classes((), None) == PUBLISHED
    assert rare_classes((1, 2), rare) == (
        "withheld, for fewer than m = 8 members hold them (6 and a margin of 2 for members that may be missing): "
        "1 (held by 3), 2 (held by 0)"
    )


def test_no_accuracy_without_records() -> None:
    head, features, labels = Calibrated(Head(np.eye(2), None, (1,))), np.eye(2), np.array([1, 1])
    assert judged(head, features, labels).accuracy == 0
    none = judged(head, features, labels, without=(1,))
    assert none.records == 0
    found = Findings(name="ffc", source="", privacy="", records=2, head=head, judged=none)
    assert np.isnan(found.figures["accuracy"])
