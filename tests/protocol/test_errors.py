import pickle

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault


def test_a_fault_says_its_cause_what_was_seen_and_who() -> None:
    fault = PeerFault(Cause.DUPLICATE, "a key twice", ["ann", "bob"])
    assert str(fault) == "duplicate: a key twice [ann, bob]"
    assert (fault.cause, fault.detail, fault.parties) == (Cause.DUPLICATE, "a key twice", ("ann", "bob"))


def test_a_fault_without_words_says_its_causes_summary() -> None:
    assert str(PeerFault(Cause.CANCELLED)) == "cancelled: the operator cancelled the round"


def test_faults_and_misuse_are_two_families() -> None:
    assert not issubclass(PeerFault, Misuse)
    assert not issubclass(Misuse, PeerFault)


def test_a_fault_survives_pickling() -> None:
    fault = PeerFault(Cause.DUPLICATE, "a key twice", ["ann"])
    copy = pickle.loads(pickle.dumps(fault))
    assert (copy.cause, copy.detail, copy.parties) == (fault.cause, fault.detail, fault.parties)
