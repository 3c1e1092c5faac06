from collections.abc import Callable

from tests.veilsum.cli import CLASSES, DIM, EXTRACTOR, TOKEN, Cli, Consortium


def test_what_is_scheduled_is_listed_and_taken_back(
    consortium: Callable[..., Consortium], remote: Cli
) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    listing = remote.at("round", "schedules", "list", c.cohort)
    assert "veilsum round open --at" in remote(*listing).err
    terms = ("--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR)
    later = remote.operate("round", "open", c.cohort, *terms, "--at", "2099-01-01T02:00")["schedule"]
    [entry] = remote.json(*listing)["schedules"]
    assert (entry["schedule"], entry["begun_s"], entry["round"]) == (later, None, None)
    for word in (later, "2099-01-01", "ffc"):
        assert word in remote(*listing).out
    taking = remote.at("round", "schedules", "cancel", later)
    assert "--token" in remote(*taking).error
    assert remote.operate("round", "schedules", "cancel", later)["removed"] == later
    assert remote.json(*listing)["schedules"] == []
    assert "no such entry" in remote(*taking, "--token", TOKEN).error
    assert "veilsum round schedules list" in remote(*remote.at("round", "schedules", "cancel", "x")).error

    counted = remote.at("round", "open", c.cohort, *terms, "--at", "2099-01-01T02:00", "--recount")
    assert "leave --recount out" in remote(*counted).error
    past = remote.operate("round", "open", c.cohort, *terms, "--at", "2001-01-01T00:00")["schedule"]
    assert [future.result(120).code for future in joining] == [0] * len(joining)
    [entry] = remote.json(*listing)["schedules"]
    assert entry["schedule"] == past
    assert entry["round"] in remote(*listing).out
    begun = remote(*remote.at("round", "schedules", "cancel", past), "--token", TOKEN)
    assert f"its round is {entry['round']}" in begun.error
