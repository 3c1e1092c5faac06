"""A federation that withholds rare classes: its coordinator counts first, and its members hold classes of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration import FFCStatistics, IndicatorLattice, indicator_layout
from client_sdk import Records
from client_sdk.effects import Flow, Request, Response
from protocol import published, rest
from protocol.causes import Cause
from protocol.coordinator import Recovered, disclose
from protocol.errors import PeerFault
from protocol.messages import Disclosure, Family
from protocol.recount import class_floor, rare_classes
from tests.client_sdk.federation import Federation
from tests.client_sdk.local_coordinator import CLASSES, DIM, LocalCoordinator, Round

HOLD = ((0, 1), (0,), (0, 1))
"""The classes that each of three members holds: g = 3 and no margin, so the second is withheld."""


class CountingCoordinator(LocalCoordinator):
    """Opens indicator rounds too, and rounds that rest on them."""

    def begin(self) -> None:
        self.order: dict[str, list[str]] = {}
        self.holders: dict[str, tuple[int, ...]] = {}
        self.shown: dict[str, Disclosure] = {}

    def open_indicator(self, cohort: str, classes: int = CLASSES, **changes: Any) -> str:
        layout, lattice = indicator_layout(classes), IndicatorLattice()
        terms = {
            "statistic": "indicator",
            "layout": layout.to_bytes(),
            "elements": layout.elements,
            "ring_bits": 8,
            "lattice": lattice.name,
            "lattice_bits": lattice.bits,
        }
        return self.open_round(cohort, **{**terms, **changes})

    def open_main(self, cohort: str, indicator: str, margin: int = 0, **changes: Any) -> str:
        phase = self.rounds[indicator].phase
        assert isinstance(phase, Recovered)
        manifest = phase.attempt.manifest
        floor = class_floor(manifest, margin)
        terms = {
            "indicator": phase.attempt.context,
            "margin": margin,
            "withheld": rare_classes(self.holders[indicator], floor),
            "evicted": phase.evicted,
        }
        return self.open_round(cohort, **{**terms, **changes})

    def open_round(self, cohort: str, exceptions: Any = (), **changes: Any) -> str:
        round_id = super().open_round(cohort, exceptions, **changes)
        self.order.setdefault(cohort, []).append(round_id)
        self.cohorts[cohort].version += 1
        return round_id

    def _routes(self) -> Any:
        where = r"/v1/rounds/(?P<round_id>[^/]+)/disclosure/(?P<member>[^/]+)"
        return [("GET", where, self._disclosure), *super()._routes()]

    def _cohort(self, request: Request, cohort: str) -> Response:
        view = rest.CohortView.model_validate_json(super()._cohort(request, cohort).body)
        body = view.model_copy(update={"rounds": tuple(self.order.get(cohort, ())), "withhold": True})
        return Response(200, {"content-type": "application/json"}, body.model_dump_json().encode())

    def _disclosure(self, request: Request, round_id: str, member: str) -> Response:
        attempt = self.rounds[round_id].phase.attempt
        assert request.signer is not None
        if request.signer.key.public != attempt.roster.key_of(member):
            raise PeerFault(Cause.FORBIDDEN, f"this is {member}'s alone")
        if round_id not in self.shown:
            raise PeerFault(Cause.WRONG_PHASE, f"round {round_id} keeps no disclosure")
        return Response(200, {}, self.shown[round_id].to_bytes())

    def _solve(self, entry: Round, phase: Recovered) -> None:
        if phase.attempt.opening.terms.family != Family.INDICATOR:
            super()._solve(entry, phase)
            return
        unmasking = phase.unmasking()
        chunks = range(phase.attempt.chunks)
        parts = [unmasking.chunk(i, ((m, entry.spool[m, i]) for m in unmasking.survivors)) for i in chunks]
        self.holders[entry.round_id] = tuple(np.concatenate(parts).tolist())
        self.shown[entry.round_id] = disclose(phase, lambda member, index: entry.spool[member, index])

    def sign(self, entry: Round, ridge: float, records: int, **changes: Any) -> published.ResultRecord:
        attempt = entry.phase.attempt
        terms, manifest = attempt.opening.terms, attempt.manifest
        rare = published.RareView(
            indicator=terms.indicator.hex(),
            margin=terms.margin,
            floor=class_floor(manifest, terms.margin),
            holders=self.holders[rest.round_name(terms.indicator)],
        )
        return super().sign(entry, ridge, records, **{"withheld": terms.withheld, "rare": rare, **changes})


class Counting(Federation):
    """Members that bring records, and get from them what each round asks for."""

    coordinator: CountingCoordinator

    def __init__(self, folder: Path, members: int = 3) -> None:
        super().__init__(folder, members)
        self.roster = self.make_roster(1, withhold=1)
        self.coordinator = CountingCoordinator(self.coordinator_key, self.roster, self.clock)
        self.coordinator.begin()

    def records(self, member: str, lineage: str = "main") -> Records:
        place = self.ids.index(member)
        rng = np.random.default_rng([place, *lineage.encode()])
        hold = HOLD[place % len(HOLD)]
        labels = np.array([*hold, *rng.choice(hold, 12)])
        return Records(rng.standard_normal((len(labels), DIM)), labels, normalise=True)

    def contributions(
        self, round_id: str, members: Sequence[str] | None = None, lineage: str = "main"
    ) -> dict[str, Flow[Any]]:
        return {
            m: self.member(m).contribute(round_id, self.records(m, lineage), lineage)
            for m in members or self.ids
        }

    def leading_on(self, cohort: str, indicator: str, **terms: Any) -> Any:
        """Where everybody waits and the classes are counted, the operator opens the next round."""

        def stuck() -> bool:
            ready = indicator in self.coordinator.holders and self.coordinator.order[cohort][-1] == indicator
            if ready:
                self.coordinator.open_main(cohort, indicator, **terms)
            return ready

        return stuck

    def kept(self, member: str, withheld: tuple[int, ...] = (1,), lineage: str = "main") -> FFCStatistics:
        """A member's statistics without these classes."""
        records = self.records(member, lineage)
        statistics = FFCStatistics(DIM, CLASSES, normalise=True, withheld=withheld)
        statistics.update(records.features, records.labels)
        return statistics
