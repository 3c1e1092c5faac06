"""Rounds with mask helpers by commands alone: roster, helpers, opening, clients, outcome, verify."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from client_sdk import Helper, Identity, Policy, Progress
from client_sdk.operator import Operator
from client_sdk.transport import Stopped
from tests.veilsum.cli import CLASSES, DIM, EXTRACTOR, TOKEN, Cli, Outcome, records


class HelperConsortium:
    """A federation of six clients and four helpers, made by commands alone."""

    def __init__(self, cli: Cli) -> None:
        self.cli, self.folder = cli, cli.folder
        self.clients = tuple(f"c{index}" for index in range(6))
        self.helpers = tuple(f"h{index}" for index in range(4))
        self.admin = cli.json("federation", "new", self.folder / "admin")["federation"]
        keys: list[str] = []
        for member in (*self.clients, *self.helpers):
            shown = cli.json("identity", "new", self.folder / member, "--member", member)
            keys += ["--member", f"{member}={shown['public_key']}"]
        self.draft = self.folder / "roster.json"
        named = [word for helper in self.helpers for word in ("--helper", helper)]
        terms = ("--extractor", EXTRACTOR, "--publish-rare-classes")
        made = cli.json(*cli.at("federation", "roster", self.draft, *keys, *named, *terms))
        assert made["helpers"] == list(self.helpers)
        signed = cli.operate("federation", "sign", self.draft, "--folder", self.folder / "admin", "--publish")
        assert signed["helpers"] == list(self.helpers)
        rng = np.random.default_rng(1)
        self.files = {client: self.write(client, *records(rng, 40)) for client in self.clients}
        self.pool = ThreadPoolExecutor(len(self.helpers))

    def write(self, name: str, features: Any, labels: Any) -> Path:
        path = self.folder / f"{name}.npz"
        np.savez(path, features=features, labels=labels)
        return path

    def help(self, *helpers: str) -> list[Future[Outcome]]:
        words = ("--admin-key", self.admin, "--attempts", 1, "--json")
        return [
            self.pool.submit(self.cli, *self.cli.at("helper", "run", self.folder / helper, *words))
            for helper in helpers
        ]

    def card(self, helper: str) -> None:
        """Run a helper that dies once its card is in."""
        dead = threading.Event()

        def watch(event: Progress) -> None:
            if "card" in event.detail:
                dead.set()

        policy = Policy(admin_key=self.admin)
        identity = Identity.load(self.folder / helper)
        with (
            Helper(self.cli.url, identity, None, policy, progress=watch) as process,
            pytest.raises(Stopped),
        ):
            process._driver.run(process._conversations.serve(None), dead)

    def carded(self, cards: int) -> None:
        """Return when so many cards are in."""
        with Operator(self.cli.url) as client:
            end = time.monotonic() + 30
            while len((view := client.helpers(self.admin)).cards) < cards and time.monotonic() < end:
                client.helpers(self.admin, view.version)

    def opening(self, *more: object) -> tuple[object, ...]:
        terms = ("--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR)
        return ("round", "open", self.admin, "--mode", "helpers", "--records-cap", 100, *terms, *more)

    def words(self, client: str, round_id: str, *more: object) -> tuple[object, ...]:
        words = ("speak", self.folder / client, "--round", round_id, "--admin-key", self.admin)
        return self.cli.at(*words, *more)


@pytest.fixture
def consortium(remote: Cli) -> Iterator[HelperConsortium]:
    made = HelperConsortium(remote)
    yield made
    made.pool.shutdown()


def test_the_whole_story(consortium: HelperConsortium, remote: Cli) -> None:
    c = consortium
    early = remote(*remote.at(*c.opening()), "--token", TOKEN)
    assert "let them run `veilsum helper run`" in early.error
    asking = remote(*remote.at(*c.opening("--heard-within", 60)), "--token", TOKEN)
    assert (
        asking.error == "--at, --recount, --margin and --heard-within go with --mode members: leave them out"
    )
    assert "has helped in no round yet" in remote("helper", "show", c.folder / "h0").error
    helping = c.help(*c.helpers[:3])  # one is down
    c.carded(3)
    dry = remote.at(*c.opening("--dry-run"), "--token", TOKEN)
    assert " 6 clients, 4 needed\n" in remote(*dry).out
    assert remote.json(*dry)["would_open"][0]["mode"] == "helpers"
    opened = remote.operate(*c.opening())
    assert (opened["mode"], opened["helpers"], opened["members"]) == (
        "helpers",
        ["h0", "h1", "h2"],
        list(c.clients),
    )
    round_id = opened["round"]
    for client in c.clients:
        said = remote.json(*c.words(client, round_id, "--features", c.files[client], "--lineage", "x"))
        assert (said["acknowledged"], said["mode"], said["helpers"]) == (True, "helpers", ["h0", "h1", "h2"])
        assert "TWO helpers with the coordinator read every client's vector" in said["trust"]
    watched = remote("round", "watch", round_id, "--url", remote.url)
    assert (watched.code, "trust" in watched.out, "helpers" in watched.out) == (0, True, True)
    for ended in helping:
        assert ended.result(60).values["attempts_ended"] == 1
    for client in c.clients[:2]:
        seen = remote.json(*c.words(client, round_id, "--outcome"))
        assert (seen["counted"], seen["survivors"], seen["of"], seen["records"]) == (True, 6, 6, 240)
        folder = c.folder / client / "result"
        checked = remote.json("verify", folder, "--admin-key", c.admin)
        assert (checked["verified_against"], checked["mode"]) == ("the pinned admin key", "helpers")
    # The same head as from everybody's files in one place.
    local = c.folder / "local.safetensors"
    remote.json("calibrate", *c.files.values(), "--output", local)
    masked = load_file(c.folder / "c0" / "result" / "weights.safetensors")
    np.testing.assert_allclose(masked["weights"], load_file(local)["weights"], rtol=0, atol=1e-6)
    shown = remote.json("helper", "show", c.folder / "h0")
    assert (shown["attempts_ended"], shown["sets_opened"]) == (1, 1)
    # Nobody joins it as a member, and a client that spoke joins no round among members.
    taken = remote(
        *remote.at("join", c.folder / "c5", "--cohort", opened["cohort"], "--admin-key", c.admin),
        *("--features", c.files["c5"], "--lineage", "x", "--round", round_id),
    )
    assert taken.code == 1
    printed = "".join(outcome.out + outcome.err for outcome in remote.said)
    for member in (*c.clients, *c.helpers):
        assert (c.folder / member / "identity.key").read_text().strip() not in printed


def test_the_admin_closes_a_round_that_is_stuck(consortium: HelperConsortium, remote: Cli) -> None:
    """The helpers are gone once their cards are in: VOID is asked for, and nobody signs it."""
    c = consortium
    for helper in c.helpers:
        c.card(helper)
    second = remote.operate(*c.opening("--upload-s", 0.1, "--answer-s", 0.1))["round"]
    with Operator(remote.url) as client:
        view = client.round(second)
        while view.deadline_s is not None:
            view = client.round(second, view.version)
    told = remote("round", "status", second, "--url", remote.url).out
    assert "veilsum round lost" in told
    signed = remote.json("helper", "show", c.folder / "h0")
    assert signed["phase"] == "enrolled"
    show = remote.json("round", "lost", second, "--url", remote.url)
    assert (show["state"], show["counts_as_opened"], show["outcomes"]) == ("voiding", [], [])
    sign = ("round", "lost", second, "--url", remote.url, "--folder", c.folder / "admin")
    assert "ask each helper" in remote(*sign).error
    assert remote.json(*sign, "--incomplete")["state"] in {"voiding", "abandoned"}
    assert remote("round", "watch", second, "--url", remote.url, "--json").values["state"] == "abandoned"


@pytest.mark.parametrize("word", [("--at", "2099-01-01T02:00"), ("--recount",), ("--margin", 0)])
def test_what_only_cohorts_have_is_not_dropped(cli: Cli, word: tuple[object, ...]) -> None:
    opening = ("round", "open", "00" * 32, "--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR)
    assert "go with --mode members" in cli(*opening, "--mode", "helpers", *word).error


def test_wrong_words(consortium: HelperConsortium, remote: Cli) -> None:
    c = consortium
    wrong = remote(
        *remote.at("round", "open", c.admin, "--dim", 1, "--classes", 1, "--extractor", EXTRACTOR),
        "--token",
        TOKEN,
        "--colluders",
        1,
    )
    assert "go with --mode helpers" in wrong.error
    assert "records_cap: " in remote(*remote.at(*c.opening()[:5], *c.opening()[7:]), "--token", TOKEN).error
    assert "not-found" in remote(*c.words("c0", "00" * 8, "--features", c.files["c0"])).error
    assert "pass --features" in remote(*c.words("c0", "00" * 8)).error
    assert "without --outcome" in remote(*c.words("c0", "00" * 8, "--outcome")).error
    stranger = remote(*remote.at("helper", "run", c.folder / "c0", "--admin-key", c.admin))
    assert "not-a-decryptor" in stranger.error
    remote("federation", "roster", c.draft, "--remove", "h3")
    assert "names 3 helpers" in remote("federation", "sign", c.draft, "--folder", c.folder / "admin").error
