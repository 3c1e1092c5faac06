"""From `admin new` to `verify`, by commands alone."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from client_sdk import Identity, Member, Policy, Records
from client_sdk.progress import Progress, Step
from protocol.messages import Manifest
from service.views import quorum_view
from tests.veilsum.cli import CLASSES, DIM, TOKEN, Cli, Consortium, enrolled, uploaded
from veilsum.commands.cohort import graph

Make = Callable[..., Consortium]


def test_the_whole_story(consortium: Make, remote: Cli) -> None:
    c = consortium(5)
    home, head = c.folder / "m0", c.folder / "made" / "head.safetensors"
    calibrating = c.later(
        *remote.at("calibrate", c.files[0], "--folder", home, "--cohort", c.cohort, "--admin-key", c.admin),
        *("--lineage", "x", "--held-out", c.test, "--output", head, "--json"),
    )
    joining = [c.join(member, "--json") for member in c.members[1:]]
    watched = remote(*remote.at("operator", "cohort", "watch", c.cohort, "--json"))
    assert watched.code == 0
    assert watched.values["quorum"]["members"] == 5
    assert "members may miss" in remote(*remote.at("operator", "cohort", "status", c.cohort)).out
    round_id = c.open()
    watched = remote("operator", "round", "watch", round_id, "--url", remote.url, "--json")
    assert watched.code == 0
    assert watched.values["state"] == "done"
    assert "of 5 uploaded, waiting for m" in watched.err
    outcomes = [calibrating.result(120), *(future.result(60) for future in joining)]
    for member, outcome in zip(c.members, outcomes, strict=True):
        assert outcome.code == 0, outcome
        assert outcome.values["round"] == round_id
        assert outcome.values["counted"] is True
        assert outcome.values["survivors"] == list(c.members)
        assert outcome.values["records"] == 200
        assert outcome.values["weights"] == [DIM, CLASSES]
        checked = remote.json("verify", c.folder / member / "result", "--admin-key", c.admin)
        assert checked["verified_against"] == "the pinned admin key"

    # The same head as from everybody's files in one place.
    local = remote.json(
        "calibrate", *c.files, "--held-out", c.test, "--output", c.folder / "local.safetensors"
    )
    pooled, masked = load_file(c.folder / "local.safetensors"), load_file(head)
    np.testing.assert_allclose(masked["weights"], pooled["weights"], rtol=0, atol=1e-6)
    assert outcomes[0].values["ridge"] == local["ridge"]
    assert outcomes[0].values["accuracy"] == local["accuracy"] > 0.9

    # A round that is over is told again, and nobody has printed a secret.
    assert "done" in remote("operator", "round", "status", round_id, "--url", remote.url).out
    assert remote("operator", "round", "watch", round_id, "--url", remote.url).code == 0
    again = remote(*c.words("m1", "--round", round_id))
    assert again.code == 0
    assert "an exact sum, without differential privacy" in again.out
    printed = "".join(outcome.out + outcome.err for outcome in remote.said)
    assert not [secret for secret in c.secrets() if secret in printed]


def test_with_bias(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    round_id = c.open("--bias", "--ridge", 0.5)
    assert remote("operator", "round", "watch", round_id, "--url", remote.url).code == 0
    outcomes = [future.result(120) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
    assert "Enrolled with 3 members; 3 must stay for a sum." in outcomes[0].err
    assert "enrolling" in outcomes[0].err + outcomes[1].err
    assert "waiting for" in "".join(outcome.err for outcome in outcomes)
    assert "bias" in load_file(c.folder / "m0" / "result" / "weights.safetensors")


def test_joined_again_after_the_round_ended_it_collects_the_result(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    round_id = c.open()
    assert [future.result(120).code for future in joining] == [0, 0, 0]
    kept = c.folder / "m0" / "state" / "results" / round_id / "record.json"
    kept.unlink()  # as if m0 had been killed before it heard of the result
    again = remote(*c.words("m0", "--output", c.folder / "again", "--json"))
    assert again.code == 0
    assert again.values["round"] == round_id
    assert kept.exists()
    other = remote.operate("operator", "cohort", "open", c.admin)["cohort"]
    words = [other if word == c.cohort else word for word in c.words("m0", "--round", round_id)]
    assert f"round {round_id} is of another cohort: pass --cohort {c.cohort}" in remote(*words).error


def test_a_cohort_is_sized_as_the_operator_says(consortium: Make, remote: Cli) -> None:
    c = consortium(6, colluders=2, honest_min=4, loss=200)
    joining = [c.join(member) for member in c.members]
    c.formed()
    round_id = c.open()
    assert [future.result(120).code for future in joining] == [0] * 6
    quorum = remote.json("operator", "cohort", "status", c.cohort, "--url", remote.url)["quorum"]
    assert (quorum["colluders"], quorum["survivors_min"], quorum["loss"], quorum["neighbours"]) == (
        2,
        6,
        200,
        5,
    )
    assert "all 5 others" in remote("operator", "cohort", "status", c.cohort, "--url", remote.url).out
    assert "done" in remote("operator", "round", "status", round_id, "--url", remote.url).out
    assert (
        "374"
        in remote(*remote.at("operator", "cohort", "open", c.admin, "--loss", 375), "--token", TOKEN).err
    )


def test_a_ring_on_which_nobody_may_be_lost_is_not_the_complete_graph() -> None:
    members = tuple(f"m-{number:03}" for number in range(210))
    shown = []
    for degree, window in ((2, 0), (12, 2), (209, 0)):
        manifest = Manifest(
            cohort=bytes(32), roster_hash=bytes(32), counter=0, members=members, cards_root=bytes(32), colluders=0,
            decryptor_colluders=0, honest_min=3, survivors_min=106, threshold=3, degree=degree, window_dropped_max=window,
            loss=0, decryptors=members[:4], caps=(1,) * 210,
        )  # fmt: skip
        shown.append(graph(quorum_view(manifest)))
    assert shown[0] == "2 others, and of any 1 in a row 0 may be lost"
    assert shown[1] == "12 others, and of any 6 in a row 2 may be lost"
    assert shown[2] == "all 209 others"


def test_an_attempt_in_an_older_cohort_goes_on_where_it_was(consortium: Make, remote: Cli) -> None:
    c = consortium()

    class Killed(Exception):  # noqa: N818 - a plug that was pulled
        pass

    def pull(event: Progress) -> None:
        if event.step is Step.UPLOADING:
            raise Killed

    joining = [c.join(member) for member in c.members[1:]]
    identity, policy = Identity.load(c.folder / "m0"), Policy(admin_key=c.admin)
    with Member(remote.url, identity, None, policy, progress=pull) as member, np.load(c.files[0]) as data:
        member.enrol(c.cohort)
        c.formed()
        round_id = c.open()
        with pytest.raises(Killed):
            member.contribute(round_id, Records(data["features"], data["labels"]), lineage="x")
    assert remote.operate("operator", "cohort", "open", c.admin)["cohort"] != c.cohort
    left_out = {"--cohort", c.cohort}
    words = [word for word in c.words("m0") if word not in left_out]
    # What was made is made: it needs no records any more.
    bare = [word for word in words if word not in {"--features", c.files[0]}]
    assert remote.json(*bare)["round"] == round_id
    assert "nothing was made that waits to be sent: pass --features" in remote(*bare).error
    assert [future.result(120).code for future in joining] == [0, 0]
    # The cohort of a round that is named need not be.
    assert remote.json(*words, "--round", round_id)["counted"] is True


def test_cancelled(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members[:2]]  # the third enrols, and stays away
    with Member(remote.url, Identity.load(c.folder / "m2"), None, Policy(admin_key=c.admin)) as member:
        member.enrol(c.cohort)
    round_id = c.open()
    uploaded(remote.url, round_id, 2)
    shown = remote("operator", "round", "status", round_id, "--url", remote.url)
    assert "waiting for" in shown.out
    cancelled = remote(
        "operator", "round", "cancel", round_id, "--reason", "a test", "--url", remote.url, "--token", TOKEN
    )
    assert cancelled.code == 0, cancelled
    third = c.join("m2", "--round", round_id)
    watched = remote("operator", "round", "watch", round_id, "--url", remote.url)
    assert watched.code == 1
    assert "voided" in watched.out
    assert "cancelled" in watched.out
    for future in (*joining, third):
        assert future.result(120).error.startswith(f"cancelled: round {round_id} ended without a sum")
    assert "rounds" in remote("operator", "cohort", "status", c.cohort, "--url", remote.url).out


def test_closed_early(consortium: Make, remote: Cli) -> None:
    c = consortium(4)
    joining = [c.join(member, "--json") for member in c.members[:2]]
    enrolled(remote.url, c.cohort, 2)
    assert (
        "enrolled  2 of 4\nmissing   m2, m3\nuntil "
        in remote(*remote.at("operator", "cohort", "status", c.cohort)).out
    )
    watching = c.later(*remote.at("operator", "cohort", "watch", c.cohort))
    outcome = remote(*remote.at("operator", "cohort", "close", c.cohort), "--token", TOKEN)
    assert outcome.code == 0
    assert watching.result(120).code == 1
    assert "failed" in outcome.out
    for future in joining:
        ended = future.result(120)
        assert ended.code == 1
        assert ended.values["cause"] == "cohort-too-small"


def test_features_that_do_not_fit_the_terms(consortium: Make, remote: Cli) -> None:
    c = consortium()
    c.files[0] = c.write("other", np.eye(4), np.arange(4) % 3)
    joining = [c.join(member) for member in c.members]
    c.formed()
    round_id = c.open()
    assert f"{c.files[0]}: features have shape (4, 4); pass (n, 6)" in joining[0].result(120).error
    uploaded(remote.url, round_id, 2)
    remote.operate("operator", "round", "cancel", round_id, "--reason", "a test")
    c.files[0] = c.files[1]
    assert (
        "cancelled" in remote(*c.words("m0", "--round", round_id)).error
    )  # with its own round, it helps to end it
    for future in joining[1:]:
        assert future.result(120).code == 1


def test_a_changed_result_does_not_verify(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    c.open()
    assert all(future.result(120).code == 0 for future in joining)
    folder = c.folder / "m0" / "result"
    assert "pass --admin-key to pin it" in remote("verify", folder).out
    assert remote("verify", folder, "--admin-key", "00" * 32).error.startswith("wrong-federation")
    for empty in ("", "zz", "00" * 31):
        assert "is not an admin's public key" in remote("verify", folder, "--admin-key", empty).error
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        if path.name != "member.json":  # what the member says of itself; nobody signed it
            changed = bytearray(raw)
            changed[len(raw) // 2] ^= 1
            path.write_bytes(changed)
            assert remote("verify", folder, "--admin-key", c.admin).error, path
        path.unlink()
        refused = remote("verify", folder, "--json")
        if path.name in {"header.bin", "transcript.json"}:  # not every result has them
            assert refused.code == 0
            assert refused.values["transcript"].startswith(
                "not fetched" if path.name == "transcript.json" else "replayed"
            )
        else:
            assert refused.code == 1
            assert set(json.loads(refused.out)) == {"error", "cause"}
        path.write_bytes(raw)
    assert remote("verify", folder, "--admin-key", c.admin).code == 0


def test_wrong_words(consortium: Make, remote: Cli, tmp_path: Path) -> None:
    c = consortium()
    assert (
        "set VEILSUM_OPERATOR_TOKEN, or name its file by `veilsum --token-file`"
        in remote(*remote.at("operator", "cohort", "open", c.admin)).error
    )
    wrong = remote(*remote.at("operator", "cohort", "open", c.admin), "--token", "wrong", "--json")
    assert wrong.values["cause"] == "unauthorised"
    assert (
        "is not a federation's id"
        in remote(*remote.at("operator", "cohort", "open", "zz"), "--token", TOKEN).error
    )
    assert "not-found" in remote(*remote.at("operator", "cohort", "open", "00" * 32), "--token", TOKEN).error
    assert "is not a cohort's id" in remote(*remote.at("operator", "cohort", "status", "../../healthz")).error
    assert "not-found" in remote(*remote.at("operator", "round", "status", "00" * 8)).error
    for command in ("status", "watch"):
        assert "is not a round's id" in remote(*remote.at("operator", "round", command, "x?y")).error
    assert (
        "is not a round's id" in remote(*remote.at("operator", "round", "cancel", "", "--reason", "x")).error
    )
    terms = ("--dim", DIM, "--classes", CLASSES, "--token", TOKEN)
    opened = remote.at("operator", "round", "open", c.cohort, *terms)
    assert "is not an extractor's digest" in remote(*opened, "--extractor", "ab").error
    assert "wrong-phase: the cohort is not formed yet" in remote(*opened, "--extractor", "ab" * 32).error
    assert remote(*opened, "--extractor", "ab" * 32, "--ridge", 0).error.startswith("ridges.0: ")
    assert remote(*opened, "--extractor", "ab" * 32, "--ring-bits", 7).code == 2
    for name, value, expected in (
        ("--admin-key", "abc", "is not an admin's public key"),
        ("--admin-key", "00" * 32, "not-found"),
        ("--cohort", "abc", "is not a cohort's id"),
        ("--round", "abc", "is not a round's id"),
        ("--extractor", "abc", "is not an extractor's digest"),
        ("--features", "nowhere.npz", "nowhere.npz does not exist"),
        ("--members-min", 4, "policy-refused"),
        ("--output", c.files[0], "is a file, and a folder is needed there"),
    ):
        if name == "--members-min":
            joining = [c.join(member) for member in c.members[1:]]
        outcome = remote(*c.words("m0", name, value))
        assert expected in outcome.error, (name, outcome)
    named = ("--folder", c.folder / "m0", "--cohort", c.cohort, "--admin-key", c.admin, "--lineage", "x")
    calibrating = remote.at("calibrate", c.files[0], *named, "--members-min", 4)
    assert "policy-refused" in remote(*calibrating).error
    for future in joining:
        assert not future.done()
    round_id = c.open()
    uploaded(remote.url, round_id, 2)
    remote.operate("operator", "round", "cancel", round_id, "--reason", "a test")
    assert "cancelled" in remote(*c.words("m0", "--round", round_id)).error
    assert all(future.result(120).code == 1 for future in joining)
    missing = remote(*[tmp_path / "nobody" if w == c.folder / "m0" else w for w in c.words("m0")])
    assert "make one with `veilsum member new`" in missing.error
