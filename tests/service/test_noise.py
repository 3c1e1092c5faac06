"""Differential privacy inside the secure round: SDK members, the app, one noisy sum after the other."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from scipy.stats import chi2  # type: ignore[import-untyped]

from calibration.collected import Collected
from calibration.errors import CalibrationError, LayoutMismatch
from calibration.lattice import FeaturesLattice
from calibration.layout import Layout
from calibration.privacy import NoiseTerms
from calibration.questions import question
from client_sdk import Policy
from client_sdk.api import Coordinator
from client_sdk.asked import terms_mechanism
from client_sdk.contribution import Attendance
from client_sdk.errors import LineageError, PeerFault
from client_sdk.offer import Offer
from client_sdk.result import Result
from client_sdk.store import Store
from client_sdk.sums import verify_sums
from client_sdk.supply import Wanted
from protocol.causes import Cause
from protocol.messages import Opening, VoidRequest
from protocol.record import sign_record
from service import spending
from service.asked import document
from tests.service.asking import DIM, Consortium, records_of
from tests.service.serving import Server, running
from veilsum.asking import promised

NOISY: dict[str, Any] = {"noise": {"epsilon": 2.0, "delta": 1e-5}}


async def noisy_round(consortium: Consortium, **request: Any) -> tuple[str, list[Result]]:
    round_id = await consortium.open_round(**{**NOISY, **request})
    return round_id, await consortium.contribute(round_id)


async def check_noise(consortium: Consortium, round_id: str, result: Result) -> None:
    """What the sum has beyond the members' own vectors is the noise of four shares."""
    terms, mechanism = result.evidence.opening.terms, terms_mechanism(result.evidence.attempt)
    assert mechanism is not None
    exact = np.zeros(terms.elements, np.int64)
    for index in range(4):
        own = consortium.collected(result, records_of(index))
        exact += own.vector(mechanism.lattice)
    noise = (await consortium.sums(round_id)) - exact
    layout = Layout.from_bytes(terms.layout)
    squares = np.zeros(0)
    for share in mechanism.shares:
        variances = np.full(
            layout.slices[share.block].stop - layout.slices[share.block].start, share.variance
        )
        if share.diagonal is not None:
            rows, columns = np.triu_indices(DIM)
            variances[rows == columns] = share.diagonal
        squares = np.append(squares, noise[layout.slices[share.block]] ** 2.0 / (4 * variances))
    # out of these bounds once in 10⁹ runs
    assert squares.size == terms.elements
    assert chi2.ppf(5e-10, squares.size) < squares.sum() < chi2.isf(5e-10, squares.size)
    assert squares.max() < 8**2


async def test_a_noisy_round_carries_the_noise_that_it_promises_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "data", mu_budget=1.0) as server:
        consortium = await Consortium(tmp_path, server, {"mu_max": 0.6}).begin()
        round_id, results = await noisy_round(consortium)
        record, terms = results[0].record, results[0].evidence.opening.terms
        view = (await server.view(round_id))["terms"]["noise"]
        assert not isinstance(record.noise, str)
        assert record.noise.model_dump(mode="json") == view
        assert 1.9 < record.noise.epsilon <= 2.0 < record.noise.published_epsilon
        assert record.noise.shares == 4 - 1 == view["shares"]
        assert (terms.family, record.solution.chosen_by, record.solution.ridge) == (
            "noisy",
            "shrinkage",
            None,
        )
        notes = results[0].calibrated.noise
        assert notes is not None
        assert notes["mu"] == record.noise.mu
        assert results[0].predict(records_of(9).features).shape == (60,)

        await check_noise(consortium, round_id, results[0])

        sums = await server.client.get(f"/v1/rounds/{round_id}/result/sums")
        verify_sums(results[0], sums.content)
        forged = record.model_copy(update={"noise": "none"})
        with pytest.raises(PeerFault, match=r"bad-signature|of noise what the terms do not"):
            Result(results[0].evidence, forged, results[0].weights_file).verify()

        # the second of the same kind fits neither the member's budget of one round nor the federation's for long
        budget = await server.client.get(f"/v1/federations/{consortium.admin.public.hex()}/budget")
        spent = budget.json()
        assert (spent["rounds"], spent["mu"], spent["mu_budget"]) == ([round_id], record.noise.mu, 1.0)
        refused = await consortium.try_round(noise={"epsilon": 5.0})
        assert refused.json()["cause"] == "terms-refused"
        assert "VEILSUM_MU_BUDGET" in refused.json()["detail"]


async def test_a_members_ledger_charges_at_upload_survives_restarts_and_refuses_when_it_is_spent(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server, {"mu_budget": 0.6}).begin()
        _, results = await noisy_round(consortium)
        noise = results[0].record.noise
        assert not isinstance(noise, str)
        (lineage,) = Store(tmp_path / "m-0").lineages.all()  # read from disk, as after a restart
        assert lineage.budget(Policy(admin_key=bytes(32), mu_budget=0.6)).mu == noise.mu
        second = await consortium.open_round(**NOISY)
        with pytest.raises(LineageError, match=r"privacy budget: main has spent μ = 0\.\d+ of 0\.6"):
            async with consortium.member("m-0") as member:
                await member.contribute(second, records_of(0), lineage="main")
        # given up before anybody uploads, it costs nobody anything
        assert [charge[0] for charge in lineage.charges] == [results[0].evidence.attempt.context]


async def test_only_a_void_certificate_gives_a_charge_back(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        round_id = await consortium.open_round(**NOISY)

        async def part(index: int) -> Any:
            async with consortium.member(f"m-{index}") as member:
                try:
                    return await member.contribute(round_id, records_of(index), lineage="main")
                except Exception as error:  # noqa: BLE001 - what it ends in is looked at
                    return error

        async def give_up() -> None:
            view = await server.view(round_id)
            while len(view["uploaded"]) < 3:
                waiting = {"after": view["version"], "wait_s": 5.0}
                view = (await server.client.get(f"/v1/rounds/{round_id}", params=waiting)).json()
            charged = Store(tmp_path / "m-0").lineages.all()
            assert [len(each.charges) for each in charged] == [1]
            await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "a test"})

        *ends, _ = await asyncio.gather(*(part(index) for index in range(3)), give_up())
        assert {type(end).__name__ for end in ends} == {"NoResult"}, ends
        assert (await server.view(round_id))["state"] == "voided"
        assert Store(tmp_path / "m-0").lineages.all() == ()
        budget = await server.client.get(f"/v1/federations/{consortium.admin.public.hex()}/budget")
        assert budget.json()["mu"] == 0


@pytest.mark.parametrize(
    ("policy", "field"), [({"sigma_min": 50.0}, "sigma_min"), ({"mu_max": 0.1}, "mu_max")]
)
async def test_a_policy_refuses_too_little_noise(tmp_path: Path, policy: dict[str, Any], field: str) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server, policy).begin()
        round_id = await consortium.open_round(**NOISY)
        with pytest.raises(PeerFault, match=field) as caught:
            async with consortium.member("m-0") as member:
                await member.contribute(round_id, records_of(0), lineage="main")
        assert caught.value.cause is Cause.POLICY_REFUSED


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"noise": {"epsilon": 1.0}, "ridges": [1.0]}, "solved by shrinkage"),
    (
        {"noise": {"epsilon": 1.0}, "parameters": {"publish": "lda,pooled"}},
        "pooled can't be published of a noisy sum",
    ),
    ({"noise": {"epsilon": 1e-6}, "ring_bits": 24}, "no scale of the features lattice holds the noise"),
]


async def test_noise_that_cannot_be_is_refused_in_words(server: Server, tmp_path: Path) -> None:
    consortium = await Consortium(tmp_path, server).begin()
    for request, words in REFUSED:
        answer = await consortium.try_round(**request)
        assert answer.json()["detail"].find(words) >= 0, answer.text
        assert answer.json()["cause"] == "terms-refused"


async def test_a_round_whose_noise_leaves_little_of_a_head_opens_only_for_who_insists(
    server: Server, tmp_path: Path
) -> None:
    consortium = await Consortium(tmp_path, server).begin()
    hopeless: dict[str, Any] = {"noise": {"epsilon": 0.5, "insist": False}}
    refused = (await consortium.try_round(**hopeless)).json()
    assert refused["cause"] == "terms-refused"
    assert refused["detail"].startswith(
        "even if all 400 records came, so much noise would be expected to cost "
    )
    assert "any of these would help: " in refused["detail"]
    assert (await consortium.try_round(**hopeless, records_max=1 << 30)).status_code == 201


async def test_noise_on_questions_whose_loss_nobody_measured_needs_no_insisting(
    server: Server, tmp_path: Path
) -> None:
    consortium = await Consortium(tmp_path, server).begin()
    await consortium.open_round(statistic="mean", noise={"epsilon": 0.5, "insist": False})


def test_terms_of_noise_have_one_encoding() -> None:
    terms = NoiseTerms.for_classes(10, 0.5, 1e-5)
    assert NoiseTerms.from_bytes(terms.to_bytes()) == terms
    for false in (b"{}", b"\xff", terms.to_bytes() + b" ", terms.to_bytes().replace(b"add-remove", b"other")):
        with pytest.raises(CalibrationError):
            NoiseTerms.from_bytes(false)
    for mu, weight, delta in ((0.0, 1.0, 0.1), (float("nan"), 1.0, 0.1), (1.0, -1.0, 0.1), (1.0, 1.0, 1.0)):
        with pytest.raises(CalibrationError):
            NoiseTerms(mu, weight, delta)


async def ended(consortium: Consortium, index: int, round_id: str, source: Any) -> Any:
    """What a member's part comes to, faults included."""
    async with consortium.member(f"m-{index}") as member:
        try:
            return await asyncio.wait_for(member.contribute(round_id, source, lineage="main"), 120)
        except Exception as error:  # noqa: BLE001 - what it ends in is looked at
            return error


async def voided(consortium: Consortium, round_id: str) -> None:
    """Given up once three of four have uploaded."""
    server = consortium.server

    async def give_up() -> None:
        view = await server.view(round_id)
        while len(view["uploaded"]) < 3:
            waiting = {"after": view["version"], "wait_s": 5.0}
            view = (await server.client.get(f"/v1/rounds/{round_id}", params=waiting)).json()
        await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "a test"})

    parts = (ended(consortium, index, round_id, records_of(index)) for index in (1, 2, 3))
    await asyncio.gather(*parts, give_up())
    assert (await server.view(round_id))["state"] == "voided"


def charges(tmp_path: Path) -> list[int]:
    return [len(each.charges) for each in Store(tmp_path / "m-0").lineages.all()]


async def test_what_is_wrong_with_the_round_itself_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfitting(_: Any) -> Any:
        raise LayoutMismatch("the material does not fit")

    def wrong(*_: Any) -> Any:
        yield from ()
        raise PeerFault(Cause.TERMS_REFUSED, "the material shown is not that whose digest the terms hold")

    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        round_id = await consortium.open_round(**NOISY)
        with monkeypatch.context() as patched:
            patched.setattr(Attendance, "_material", wrong)
            assert isinstance(await ended(consortium, 0, round_id, records_of(0)), PeerFault)
        assert charges(tmp_path) == []
        with monkeypatch.context() as patched:
            patched.setattr(Wanted, "collect", unfitting)
            assert isinstance(await ended(consortium, 0, round_id, records_of(0)), PeerFault)
        assert charges(tmp_path) == []


async def test_a_void_certificate_gives_back_what_a_member_paid_that_could_then_not_take_part(
    tmp_path: Path,
) -> None:
    def unreadable(_: Any) -> Any:
        raise OSError("records that cannot be read")

    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        round_id = await consortium.open_round(**NOISY)
        assert isinstance(await ended(consortium, 0, round_id, unreadable), OSError)
        assert charges(tmp_path) == [1]
        assert isinstance(await ended(consortium, 0, round_id, unreadable), OSError)
        assert charges(tmp_path) == [1]  # once, and no end was shown yet
        await voided(consortium, round_id)
        assert type(await ended(consortium, 0, round_id, records_of(0))).__name__ == "NoResult"
        assert charges(tmp_path) == []
        assert Store(tmp_path / "m-0").lineages.awaited() == ()


async def test_who_only_helped_at_first_pays_before_its_records_are_looked_at(tmp_path: Path) -> None:
    looked: list[list[int]] = []

    def unreadable(_: Any) -> Any:
        looked.append(charges(tmp_path))
        raise OSError("records that cannot be read")

    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        round_id = await consortium.open_round(**NOISY)
        async with consortium.member("m-0") as member:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(member.contribute(round_id, None), 2)
        assert charges(tmp_path) == []
        assert isinstance(await ended(consortium, 0, round_id, unreadable), OSError)
        assert looked == [[1]]


async def test_who_comes_too_late_to_upload_pays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, voided = Coordinator.request, []

    def later(self: Coordinator, *args: Any, **more: Any) -> Any:
        """As if the others had been so quick that the round is past its uploads."""
        message, version = yield from request(self, *args, **more)
        if isinstance(message, Opening):
            context = bytes.fromhex((yield from self.round(args[0])).context)
            message = VoidRequest(context, "aborted")
            voided.append(context)
        return message, version

    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        round_id = await consortium.open_round(**NOISY)
        monkeypatch.setattr(Coordinator, "request", later)
        async with consortium.member("m-0") as member:
            late = asyncio.create_task(member.contribute(round_id, records_of(0), lineage="main"))
            async with asyncio.timeout(120):
                while not voided:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
            assert await asyncio.wait([late], timeout=1) == (set(), {late})
            late.cancel()
            await asyncio.wait([late])
        assert charges(tmp_path) == []


async def test_all_that_a_record_or_a_head_says_of_noise_follows_from_the_terms(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        _, (result, *_) = await noisy_round(consortium)
        key = server.coordinator.key

        def forged(notes: dict[str, Any] | None = None, **changed: Any) -> Result:
            view, file = result.record.noise, result.weights_file
            assert not isinstance(view, str)
            assert file is not None
            if notes is not None:
                file = document(load(file), {**result.calibrated.notes, "noise": notes})
            update = {
                "noise": view.model_copy(update=changed),
                "weights_sha256": hashlib.sha256(file).hexdigest(),
                "transcript": result.record.transcript,
                "signature": "",
            }
            record = sign_record(result.record.model_copy(update=update), key)
            return replace(result, record=record, weights_file=file, transcript_file=None)

        told = result.record.noise.model_dump(mode="json")  # type: ignore[union-attr]
        forged().verify()
        nearly = told["sigma"] * (1 + 1e-12)  # as another library computes it
        forged({**told, "sigma": nearly}, sigma=nearly).verify()
        mechanism = terms_mechanism(result.evidence.attempt)
        assert mechanism is not None
        false: dict[str, Any] = {"neighbours": "replace", "nonnegative": True, "shares": told["shares"] + 1}
        false |= {
            name: told[name] * 1.01 for name in ("mu", "epsilon", "published_epsilon", "sigma", "weight")
        }
        for name, value in false.items():
            with pytest.raises(PeerFault, match="promises other noise than the terms come to"):
                forged({**told, name: value}, **{name: value}).verify()
            with pytest.raises(PeerFault, match="the head promises other noise than the record"):
                forged({**told, name: value}).verify()
        with pytest.raises(PeerFault, match="promises other noise than the terms come to"):
            forged(delta=0.4, epsilon=mechanism.epsilon(0.4)).verify()


async def test_statistics_made_before_the_round_are_of_its_very_noise_and_layout(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        _, (result, *_) = await noisy_round(
            consortium, noise={"epsilon": 2.0, "neighbours": "replace", "nonnegative": True}
        )
        attempt, lattice = (
            result.evidence.attempt,
            FeaturesLattice(result.evidence.opening.terms.lattice_bits),
        )
        terms = attempt.opening.terms
        noise, layout = NoiseTerms.from_bytes(terms.noise), Layout.from_bytes(terms.layout)
        centre = np.full(DIM, 0.1)

        def offered(noise: NoiseTerms | None, layout: Layout = layout) -> None:
            own = Collected(
                question("ffc", layout, b"", {"centre": centre}), lattice, noise=noise, normalise=True
            )
            Offer.of(own, "main", b"k" * 32).check(attempt, "m-0")

        offered(noise)
        for other in (None, replace(noise, nonnegative=False), replace(noise, weight=2.0)):
            with pytest.raises(
                PeerFault, match="noise: this member wants that which its statistics were made for"
            ) as caught:
                offered(other)
            assert caught.value.cause is Cause.POLICY_REFUSED
        for changed in (layout.having(centre=True), layout.having(publish="lda")):
            with pytest.raises(PeerFault, match=r"layout|noise"):
                offered(noise, changed)
        plain, centred = question("ffc", layout), question("ffc", layout.having(centre=True))
        assert not plain.takes(centred.layout)
        assert not centred.takes(plain.layout)


async def test_a_round_that_protects_members_as_a_whole_cuts_each_one_s_sums(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        asked: dict[str, Any] = {"noise": {"epsilon": 2.0, "delta": 1e-5, "member_records": 8}}
        round_id = await consortium.open_round(**asked)
        results = await consortium.contribute(round_id)
        results[0].verify()
        noise = results[0].record.noise
        assert not isinstance(noise, str)
        assert noise.member_records == 8
        assert promised(noise)["noise"].endswith("for a member's presence")
        await check_noise(consortium, round_id, results[0])

        # each vector is as long as the bound allows, which its 60 records alone are not
        mechanism = terms_mechanism(results[0].evidence.attempt)
        assert mechanism is not None
        own = consortium.collected(results[0], records_of(0)).vector(mechanism.lattice)
        length = np.linalg.norm(own * mechanism.weights())
        assert 0.999 * mechanism.sensitivity < length <= mechanism.sensitivity


async def test_no_noisy_round_rests_on_an_exact_sum_that_its_head_would_show(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        exact = await consortium.open_round()
        await consortium.contribute(exact)
        refused = await consortium.try_round(statistic="refine", **NOISY, rests_on=exact)
        assert refused.status_code == 422
        assert "is exact: what a noisy one tells" in refused.json()["detail"]


def test_a_budget_beyond_all_meaning_is_shown_and_kept() -> None:
    noisy = {"a" * 16: 54.0, "b" * 16: 72.0}
    shown = spending.view(noisy, "ab" * 32, 100.0)
    assert (shown.mu, shown.epsilon, shown.rounds) == (90.0, None, tuple(noisy))

    class Asking:
        noise = NoiseTerms(40.0, 1.0).to_bytes()

    spending.check(noisy, Asking(), 100.0)  # type: ignore[arg-type]
    with pytest.raises(PeerFault, match=r"would leave it: a round of μ ≤ 43.59"):
        spending.check(noisy, type("More", (), {"noise": NoiseTerms(44.0, 1.0).to_bytes()})(), 100.0)
