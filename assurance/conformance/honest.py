"""The honest run: nothing is false, and the sum must hold exactly the client's data."""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
from safetensors.numpy import load

from assurance.conformance.federation import TRAPS, data_of
from assurance.conformance.play import Finding, Play, Verdict
from veilsum.protocol.member import Closed
from veilsum.protocol.messages import Certificate, Enrolment, Receipt
from veilsum.protocol.round_spec import RoundSpec
from veilsum.study.promise import mechanism_of
from veilsum.study.vectors import compute_vector, noiseless_vector

TOLERANCE = 2
"""Units of the last place by which two clients' exact vectors may differ (member: Exact vectors)."""
NOISE_DEVIATIONS = 8.0
ENDING_S = 5.0
"""How long a client may take to fetch the result."""


class HonestRun(Play):
    """A whole run without a false answer."""

    ended_s: float | None = None

    def _end(self) -> None:
        """Go on: what counts is the sum."""
        self.progress_s = time.monotonic()

    def _give_up(self) -> None:
        last = type([*self.sent.values()][-1]).__name__ if self.sent else "nothing"
        seen = f"it last sent {last} (round {len(self.federation.rounds)}): {self.client.output[-300:]}"
        self.findings.append(Finding("run", self.part.name, Verdict.BROKEN, seen, "a whole run"))
        self.is_over = True

    async def _look(self) -> None:
        if not self.federation.over.is_set():
            await super()._look()
            return
        self.ended_s = self.ended_s or time.monotonic()
        if not self.client.is_running or time.monotonic() > self.ended_s + ENDING_S:
            await self._check_sums()
            self.is_over = True

    async def _check_sums(self) -> None:
        wrong: dict[str, str] = {}
        for name in self.federation.rounds:
            view = await self.federation.server.view(name)
            wrong |= await self._check_sum(view)
        for rule, (what, _) in {"run": ("the sum of the whole run", ""), **TRAPS}.items():
            verdict = Verdict.BROKEN if rule in wrong else Verdict.KEPT
            if rule == "run" or not wrong or rule in wrong:
                self.findings.append(
                    Finding(
                        rule,
                        f"{self.part.name}: {what}",
                        verdict,
                        wrong.get(rule, "the exact sum"),
                        "exactly the client's rows",
                    )
                )

    async def _check_sum(self, view: dict[str, Any]) -> dict[str, str]:
        """Return what is wrong with a round's sum, by rule."""
        party, client, step = self.federation.party, self.part.client, view["spec"]["step"]
        if view["state"] != "done":
            return {"run": f"the {step} ended as {view['state']}"}
        certificate = await self.federation.server.client.get(f"/v1/contexts/{view['context']}/closing")
        survivors = [each.member for each in Certificate.from_bytes(certificate.content).survivors]
        if client not in survivors:
            return {"run": f"the {step} has no upload of the client"}
        spec, material = party.asked[step]
        if spec.is_disclosed:
            context = bytes.fromhex(view["context"])
            phases = [phase for phase in party.phases.values() if isinstance(phase, Closed)]
            total = np.array(next(filter(None, (phase.history.count_of(context) for phase in phases))).sums)
        else:
            total = load(
                (await self.federation.server.client.get(f"/v1/rounds/{view['round']}/result/sums")).content
            )["sum"]
        own = total - sum(party.vectors[view["context"]][member] for member in survivors if member != client)
        limit = largest_difference(spec)
        features, labels = party.records(client)
        difference = own - self._plain(spec, features, labels, material)
        if (np.abs(difference) <= limit).all():
            return {}
        every, keys, _ = data_of(party, client)
        indices = np.array([party.question["classes"].index(key) for key in keys])
        for place, rule in enumerate(TRAPS):
            rows = [*range(len(labels)), len(labels) + place]
            if (np.abs(own - self._plain(spec, every[rows], indices[rows], material)) <= limit).all():
                return {rule: f"{TRAPS[rule][0]} was summed in the {step}"}
        return {
            "run": f"the {step} differs from the client's data by up to {np.abs(difference).max():.0f} units"
        }

    def _plain(self, spec: RoundSpec, features: Any, labels: Any, material: Any) -> Any:
        """Return the vector of rows, without noise."""
        if spec.question.noise is None:
            return compute_vector(spec, features, labels, material)
        kept = np.abs(features).max(axis=1) > 0
        return noiseless_vector(spec, features[kept], np.asarray(labels)[kept], material or {})


class OtherData(HonestRun):
    """The client is started again with other data after its card; the sum must hold the rows that it reserved (SELECT-6)."""

    is_other = False

    async def _look(self) -> None:
        if not self.is_other and any(isinstance(message, Enrolment) for message in self.sent.values()):
            self.is_other = True
            await self.client.stop()
            features, labels, ids = data_of(self.federation.party, self.part.client)
            self.federation.write_data(2.0 + features[::-1], labels, ids)
            await self._start()
        await super()._look()

    async def _check_sums(self) -> None:
        await super()._check_sums()
        rows = [each for each in self.findings if each.rule == "run"]
        self.findings = [replace(each, rule="SELECT-6", name=self.part.name) for each in rows]


class FalseBox(HonestRun):
    """A dealer's box to the client holds no shares. The client must complain in its Receipt, and the run goes on."""

    async def _check_sums(self) -> None:
        dealer = self.federation.shape.false_box
        complaints = next((each.complaints for each in self.sent.values() if isinstance(each, Receipt)), ())
        verdict = Verdict.KEPT if complaints == (dealer,) else Verdict.BROKEN
        seen = f"complaints about {', '.join(complaints) or 'no one'}"
        self.findings.append(Finding("BOX-8", self.part.name, verdict, seen, f"a complaint about {dealer}"))


def largest_difference(spec: RoundSpec) -> float:
    """Return by how much an element of the client's vector may differ from the kit's."""
    if spec.question.noise is not None:
        return NOISE_DEVIATIONS * math.sqrt(mechanism_of(spec).largest)
    return 0 if spec.is_disclosed else TOLERANCE
