"""What a reviewer made of old lineages brought to rounds over new records: each as it was done."""

from hashlib import sha256
from typing import Any

from protocol.coordinator import Recovered
from protocol.messages import Message, Receipt, Upload
from protocol.simulator import After, Federation, untampered
from tests.protocol.forging import again, false_dealers, other_secrets

OLD = b"the-same"


class Periods(Federation):
    """Members name their lineages one by one."""

    lineages: Any

    def _upload(self, member: str, opened: Any) -> Any:
        self.uploading = member
        return super()._upload(member, opened)

    def _lineage(self) -> bytes:
        return bytes(self.lineages(self.uploading))

    def period(self, number: int, *abusers: str) -> Any:
        """A round over new records, to which the abusers bring their old lineage."""
        fresh = sha256(bytes([number])).digest()[:8]
        self.lineages = lambda member: OLD if member in abusers else fresh
        return self.run_round(self.vectors(4))


def old(_: str) -> bytes:
    return OLD


def test_after_an_eviction_a_member_brings_the_old_lineage_to_every_period() -> None:
    federation = Periods(8)
    federation.lineages = old
    false_dealers(federation, {"member-0": other_secrets})
    first = federation.run_round(federation.vectors(4)).phase
    assert isinstance(first, Recovered)
    assert first.evicted == ("member-0",)
    federation.tamper, federation.drop = untampered, {0: After.CARD}
    excused = (federation.excepting(("member-0",)),)
    assert isinstance(federation.run_round(federation.vectors(4), exceptions=excused).phase, Recovered)
    federation.drop = {}
    assert len(federation.period(0).survivors) == 8
    for number in (1, 2):
        ended = federation.period(number, "member-7")
        assert isinstance(ended.phase, Recovered), ended.fault
        assert set(ended.survivors) == set(federation.ids) - {"member-7"}


def test_colluders_make_a_small_group_and_bring_it_to_every_period() -> None:
    federation = Periods(40)
    federation.lineages = old
    colluders, victims = federation.ids[30:], federation.ids[:3]
    assert len(colluders) == federation.manifest.colluders
    assert isinstance(federation.run_round(federation.vectors(4)).phase, Recovered)

    def complaining(sender: str, message: Message) -> Message | None:
        if sender in colluders and isinstance(message, Upload):
            return None
        if sender in colluders[:3] and isinstance(message, Receipt):
            victim = victims[colluders.index(sender)]
            dealers = tuple(dealer for dealer in message.dealers if dealer != victim)
            return again(message, federation.keys[sender], dealers=dealers, complaints=(victim,))
        return message

    federation.tamper = complaining
    federation.run_round(federation.vectors(4))
    federation.tamper = untampered
    ended = federation.period(1, *colluders)
    assert isinstance(ended.phase, Recovered), ended.fault
    assert set(ended.survivors) == set(federation.ids) - set(colluders)
    assert len(federation.period(2).survivors) == 40


def test_where_more_than_collude_would_have_to_go_nobody_does() -> None:
    federation = Periods(8)
    federation.lineages = old
    assert isinstance(federation.run_round(federation.vectors(4)).phase, Recovered)
    few = federation.ids[: federation.manifest.colluders + 1]
    ended = federation.period(1, *few)
    assert ended.fault is not None
    assert ended.fault.cause.value in {"ledger-refused", "survivors-too-few"}
