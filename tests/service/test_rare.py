"""An indicator round, and the main round that withholds what it counted too few holders of, over the wire (protocol §9)."""

import asyncio
import json
import secrets
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load

from protocol import rest
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Disclosure
from protocol.rest import MAX_DISCLOSURE_BYTES, RoundRequest
from protocol.simulator import After
from service import counting
from service.coordinator import SWEEP_S
from service.indicating import indicator_terms
from tests.service.counting import COUNTS, Counting
from tests.service.serving import Server, running, snapshot


@pytest.fixture
def party() -> Counting:
    return Counting(tuple(f"m-{index}" for index in range(6)), classes=5)


@pytest.fixture
async def formed(server: Server, party: Counting) -> Counting:
    await party.begin(server)
    return party


async def give_up(server: Server, party: Counting, round_id: str) -> None:
    """The operator cancels a round that everybody has opened."""
    for member in party.ids:
        party.seal(member, await server.opening(round_id, member))
    await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "stop"})
    assert (await party.play(server, round_id))["state"] == "voided"


def metadata(weights: bytes) -> dict[str, Any]:
    """What a head's file says of itself."""
    (length,) = struct.unpack("<Q", weights[:8])
    found: dict[str, Any] = json.loads(json.loads(weights[8 : 8 + length])["__metadata__"][rest.HEAD])
    return found


async def test_the_counts_come_first_then_the_round_without_what_few_hold(
    server: Server, formed: Counting
) -> None:
    indicator = await formed.count(server)
    view = await server.view(indicator)
    assert view["holders"] == COUNTS
    assert (view["terms"]["statistic"], view["terms"]["dim"], view["terms"]["classes"]) == (
        "indicator",
        None,
        5,
    )
    assert (view["terms"]["lattice"], view["terms"]["ring_bits"]) == ("indicator", 8)
    assert {member: formed.counts(member) for member in formed.ids} == dict.fromkeys(formed.ids, COUNTS)
    cohort = (await server.client.get(f"/v1/cohorts/{formed.cohort}")).json()
    assert (cohort["withhold"], cohort["indicator"]) == (True, indicator)
    main = await formed.open_round(server)
    terms = (await server.view(main))["terms"]
    assert (terms["indicator"], terms["margin"], terms["withheld"]) == (view["context"], 1, [2, 3, 4])
    assert (await formed.play(server, main))["state"] == "done"
    record = await formed.check_result(server, main)
    assert record["withheld"] == [2, 3, 4]
    assert record["rare"] == {"indicator": view["context"], "margin": 1, "floor": 5, "holders": COUNTS}
    assert record["solution"]["empty_classes"] == [2, 3, 4]
    weights = (await server.client.get(f"/v1/rounds/{main}/result/weights")).content
    assert metadata(weights) == {
        "classes_without_records": [2, 3, 4],
        "withheld": [2, 3, 4],
        "form": {"kind": "linear"},
    }
    assert load(weights)["weights"].shape == (4, 5)
    assert not load(weights)["weights"][:, 2:].any()
    cohort = (await server.client.get(f"/v1/cohorts/{formed.cohort}")).json()
    assert cohort["indicator"] is None


async def test_without_counts_a_round_is_refused_with_what_to_do(server: Server, formed: Counting) -> None:
    refused = await formed.try_round(server)
    assert (refused.status_code, refused.json()["cause"]) == (422, "terms-refused")
    assert "no indicator round of this cohort has been finished" in refused.json()["detail"]
    assert "`veilsum operator round open`" in refused.json()["detail"]
    # one that was given up counts nothing
    given_up = await formed.open_indicator(server)
    await give_up(server, formed, given_up)
    assert (await formed.try_round(server)).json()["cause"] == "terms-refused"
    await formed.count(server)
    for request, words in (
        ({"classes": 6}, "counted 5 classes, and this round is over 6"),
        ({"margin": 3}, "each class is held by fewer than m = 7 members"),
    ):
        refused = await formed.try_round(server, **request)
        assert (refused.status_code, refused.json()["cause"]) == (422, "terms-refused")
        assert words in refused.json()["detail"]
    main = await formed.open_round(server, margin=0)
    assert (await server.view(main))["terms"]["withheld"] == [2, 3, 4]


async def test_where_rare_classes_are_published_nobody_counts(server: Server) -> None:
    party = Counting(tuple(f"m-{index}" for index in range(6)), classes=5)
    await party.found(server)
    party.roster = party.make_roster(party.roster.coordinator, version=2, withhold=0)
    where = f"/v1/federations/{party.federation}/roster"
    await server.client.put(where, content=party.roster.to_bytes(), headers={"content-type": rest.OCTETS})
    await party.open_cohort(server)
    await party.enrol(server)
    refused = await party.try_indicator(server)
    assert (refused.status_code, refused.json()["cause"]) == (422, "terms-refused")
    assert "the admin signed that rare classes are published" in refused.json()["detail"]
    main = await party.open_round(server)
    assert (await party.play(server, main))["state"] == "done"
    record = await party.check_result(server, main)
    assert (record["withheld"], record["rare"]) == ([], None)
    cohort = (await server.client.get(f"/v1/cohorts/{party.cohort}")).json()
    assert (cohort["withhold"], cohort["indicator"]) == (False, None)


@pytest.mark.parametrize("request_", [{"statistic": "indicator", "dim": 4}, {"dim": None}])
async def test_features_go_with_statistics_of_features(
    server: Server, formed: Counting, request_: dict[str, Any]
) -> None:
    refused = await formed.try_round(server, **request_)
    assert (refused.status_code, refused.json()["cause"]) == (400, "malformed-request")
    assert "an indicator round has none" in refused.json()["detail"]


async def test_only_members_are_shown_who_holds_what(server: Server, formed: Counting) -> None:
    indicator = await formed.open_indicator(server)
    early = await formed.shown(server, indicator, "m-0")
    assert (early.status_code, early.json()["cause"]) == (409, "wrong-phase")
    await formed.play(server, indicator)
    assert isinstance(
        Disclosure.from_bytes((await formed.shown(server, indicator, "m-0")).content), Disclosure
    )
    forged = await formed.shown(server, indicator, "m-0", by="m-1")
    assert (forged.status_code, forged.json()["cause"]) == (403, "forbidden")
    formed.keys["m-9"] = formed.keys["m-0"]
    stranger = await formed.shown(server, indicator, "m-9")
    assert (stranger.status_code, stranger.json()["cause"]) == (403, "forbidden")
    unsigned = await server.anonymous().get(f"/v1/rounds/{indicator}/disclosure/m-0")
    assert (unsigned.status_code, unsigned.json()["cause"]) == (401, "request-unsigned")


async def test_an_indicator_round_has_no_head_and_no_sums_to_hand_out(
    server: Server, formed: Counting
) -> None:
    indicator = await formed.count(server)
    for what in ("", "/weights", "/sums"):
        refused = await server.client.get(f"/v1/rounds/{indicator}/result{what}")
        assert (refused.status_code, refused.json()["cause"]) == (409, "wrong-phase")
    main = await formed.open_round(server)
    refused = await formed.shown(server, main, "m-0")
    assert (refused.status_code, refused.json()["cause"]) == (409, "wrong-phase")


async def test_what_was_disclosed_is_kept_until_a_result_rests_on_it(
    server: Server, formed: Counting
) -> None:
    first = await formed.count(server)
    voided = await formed.open_round(server)
    await give_up(server, formed, voided)
    assert (await formed.shown(server, first, "m-0")).status_code == 200
    # a later count takes its place
    second = await formed.count(server)
    gone = await formed.shown(server, first, "m-0")
    assert (gone.status_code, gone.json()["detail"]) == (409, f"round {first} keeps no disclosure")
    main = await formed.open_round(server)
    assert (await server.view(main))["terms"]["indicator"] == (await server.view(second))["context"]
    assert (await formed.shown(server, second, "m-0")).status_code == 200
    assert (await formed.play(server, main))["state"] == "done"
    await formed.check_result(server, main)
    while "disclosure" in server.coordinator.blobs.names(f"results/{second}"):
        await server.client.get("/healthz")
    assert (await formed.shown(server, second, "m-0")).status_code == 409
    # whoever has counted goes on by what it knows
    again = await formed.open_round(server)
    assert (await formed.play(server, again))["state"] == "done"
    assert (await formed.check_result(server, again))["rare"]["holders"] == COUNTS


async def test_what_was_put_back_after_it_was_forgotten_is_swept(server: Server, formed: Counting) -> None:
    """By a process that stood still while another went on."""
    first = await formed.count(server)
    late = server.coordinator.blobs.get(f"results/{first}/{counting.DISCLOSURE}")
    second = await formed.count(server)
    while "disclosure" in server.coordinator.blobs.names(f"results/{first}"):
        await server.client.get("/healthz")
    server.coordinator.blobs.put(f"results/{first}/{counting.DISCLOSURE}", late)
    server.clock.ahead_s += SWEEP_S + 1
    for _ in range(500):
        if "disclosure" not in server.coordinator.blobs.names(f"results/{first}"):
            break
        server.coordinator.keeper.wake()
        await asyncio.sleep(0.01)
    assert "disclosure" not in server.coordinator.blobs.names(f"results/{first}")
    assert "disclosure" in server.coordinator.blobs.names(f"results/{second}")


async def test_what_was_disclosed_is_not_kept_beyond_its_cohorts_cards(
    tmp_path: Path, party: Counting
) -> None:
    """No round can rest on it any more, in a federation that never opens one either."""
    async with running(tmp_path / "data") as server:
        await party.begin(server)
        indicator = await party.count(server)
        snapshot(server.folder, tmp_path / "later")
    async with running(tmp_path / "later") as server:
        assert (await party.shown(server, indicator, "m-0")).status_code == 200
        clock = server.clock
    clock.ahead_s += 2 * 10**7
    async with running(tmp_path / "later", clock) as server:
        gone = await party.shown(server, indicator, "m-0")
        assert (gone.status_code, gone.json()["detail"]) == (409, f"round {indicator} keeps no disclosure")
        assert (await server.view(indicator))["holders"] == COUNTS


async def test_counts_that_nobody_can_have_fail_the_round(server: Server, formed: Counting) -> None:
    formed.spoil["m-2"] = lambda vector: vector - 100
    indicator = await formed.open_indicator(server)
    view = await formed.play(server, indicator)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "sum-check-failed")
    assert not any(letter.isdigit() for letter in view["fault"]["detail"])
    assert view["holders"] == []
    assert (await formed.try_round(server)).json()["cause"] == "terms-refused"
    await server.tidy(indicator)
    assert server.coordinator.blobs.names(f"results/{indicator}") == ()


async def test_a_dealer_that_was_evicted_is_not_counted_and_loses_the_main_round_alone(
    server: Server,
) -> None:
    party = Counting(tuple(f"m-{index}" for index in range(6)), classes=5)
    await party.begin(server)
    party.deal["m-0"] = lambda _decryptor, shares: bytes(36) + shares[36:]
    indicator = await party.open_indicator(server)
    view = await party.play(server, indicator)
    assert (view["state"], view["evicted"], view["holders"]) == ("done", ["m-0"], [5, 5, 2, 1, 0])
    await party.recount(server, indicator)
    assert party.counts("m-1") == party.counts("m-0") == [5, 5, 2, 1, 0]
    del party.deal["m-0"]
    main = await party.open_round(server)
    assert server.coordinator.rounds[main].attempt.opening.terms.evicted == ("m-0",)
    view = await party.play(server, main)
    assert (view["state"], view["survivors"]) == ("done", list(party.ids[1:]))
    assert "m-0" in view["uploaded"] or view["evicted"] == []
    record = await party.check_result(server, main)
    assert record["rare"]["holders"] == [5, 5, 2, 1, 0]


async def test_counts_and_what_rests_on_them_survive_restarts(tmp_path: Path, party: Counting) -> None:
    async with running(tmp_path / "data") as server:
        await party.begin(server)
        indicator = await party.open_indicator(server)
        await party.play_until(server, indicator, "revealing")
        snapshot(server.folder, tmp_path / "revealing")
        then = party.copy()
    async with running(tmp_path / "revealing") as server:
        assert (await then.play(server, indicator))["holders"] == COUNTS
        await then.recount(server, indicator)
        view = await server.view(indicator)
        shown = (await then.shown(server, indicator, "m-3")).content
        snapshot(server.folder, tmp_path / "counted")
    async with running(tmp_path / "counted") as server:
        assert await server.view(indicator) == view
        assert (await then.shown(server, indicator, "m-3")).content == shown
        main = await then.open_round(server)
        await then.play_until(server, main, "freezing")
        snapshot(server.folder, tmp_path / "main")
    async with running(tmp_path / "main") as server:
        assert (await then.play(server, main))["state"] == "done"
        record = await then.check_result(server, main)
        assert (record["withheld"], record["rare"]["holders"]) == ([2, 3, 4], COUNTS)
        # As a crash between the result and the clearing would leave it.
        server.coordinator.blobs.put(f"results/{indicator}/{counting.DISCLOSURE}", shown)
    async with running(tmp_path / "main") as server:
        assert (await then.shown(server, indicator, "m-3")).status_code == 409


async def test_who_did_not_count_takes_no_part_and_the_others_go_on(server: Server, formed: Counting) -> None:
    formed.drop = {"m-5": After.OPENING}
    indicator = await formed.count(server)
    assert (await server.view(indicator))["holders"] == [5, 5, 2, 2, 0]
    main = await formed.open_round(server)
    view = await formed.play(server, main)
    assert (view["state"], view["survivors"]) == ("done", list(formed.ids[:5]))
    await formed.check_result(server, main)


async def test_a_disclosure_longer_than_members_read_is_not_begun(server: Server, formed: Counting) -> None:
    manifest = server.coordinator.cohorts[formed.cohort].formed()
    request = RoundRequest(statistic="indicator", classes=65_535, extractor=secrets.token_hex(32))
    terms = indicator_terms(request, manifest, bytes(32), 6000, 1)
    assert terms.elements == 65_535
    many = tuple(f"m-{index:04}" for index in range(1000))
    crowd = replace(manifest, members=many, caps=(1,) * 1000)
    with pytest.raises(
        PeerFault, match=f"more than the {MAX_DISCLOSURE_BYTES} that a member reads"
    ) as caught:
        indicator_terms(request, crowd, bytes(32), 6000, 1)
    assert caught.value.cause is Cause.TERMS_REFUSED
