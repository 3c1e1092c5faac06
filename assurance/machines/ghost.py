"""What the coordinator and colluders know from everything that honest members released, and what they must never know.

The ghost sees what no party sees: who signed what, which shares were released by whom, and which certificates are true. It uses nothing of
`protocol` but the layout of messages, and checks independently what the specification promises (wire: Openings, wire: Votes, wire: Reveals, wire: Ends, analysis: Proofs).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from assurance.machines.cast import Mutable
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.messages import (
    SHARE_BYTES,
    Certificate,
    Erased,
    Manifest,
    Message,
    Pairing,
    Receipt,
    Reveal,
    Survivor,
    Upload,
    Vote,
    share_commitments,
)

MANIFESTS_MAX, NEVER = 3, b""
Context = bytes
Record = tuple[str, int]
"""An honest member's record: the member and the record's number."""


class Ghost(Mutable):
    """Count votes and shares, and check the protocol's promises.

    Attributes:
        liars: members that collude with the coordinator. All they hold is known, and they sign anything.
        manifests: by hash.
        pairings: of honest members, by manifest hash and member.
        paired: manifests that each honest member paired under, in order, by cohort and member.
        joined: manifest hash under which each honest member holds the keys of its pairs, by cohort and member; `NEVER` once they lapsed.
        attempts: by context.
        uploads: of honest members, by context and member; `rows` holds all uploads by digest.
        receipts, votes, erased: messages that honest members signed, one for each context.
        revealed: outcomes for which honest members revealed, by context and member.
        delivered: digests of the uploads whose boxes each member opened, by context and member.
        shown: outcomes of true certificates that each member was shown.
        shares: places of the decryptors whose share of a dealer's secret was released, by context, dealer and index.
        records: numbers of the records behind each honest upload, by context and member.
        sums: sets of honest members whose sum can be computed, by context.
        reached: how often each state of interest was reached.
    """

    def __init__(self, liars: Iterable[str]) -> None:
        self.liars = frozenset(liars)
        self.manifests: dict[bytes, Manifest] = {}
        self.pairings: dict[tuple[bytes, str], Pairing] = {}
        self.paired: dict[tuple[bytes, str], list[Manifest]] = defaultdict(list)
        self.joined: dict[tuple[bytes, str], bytes] = {}
        self.attempts: dict[Context, Attempt] = {}
        self.uploads: dict[Context, dict[str, Upload]] = defaultdict(dict)
        self.rows: dict[bytes, Upload] = {}
        self.receipts: dict[tuple[Context, str], Receipt] = {}
        self.votes: dict[Context, dict[bytes, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.sets: dict[bytes, tuple[Survivor, ...]] = {}
        self.erased: dict[tuple[Context, str], Erased] = {}
        self.revealed: dict[tuple[Context, str], bytes] = {}
        self.delivered: dict[tuple[Context, str], frozenset[bytes]] = {}
        self.shown: dict[tuple[Context, str], set[bytes]] = defaultdict(set)
        self.shares: dict[Context, dict[tuple[str, int], set[int]]] = defaultdict(lambda: defaultdict(set))
        self.records: dict[Context, dict[str, frozenset[int]]] = defaultdict(dict)
        self.sums: dict[Context, frozenset[str]] = {}
        self.reached: Counter[str] = Counter()

    def threshold_met(self, context: Context, outcome: bytes) -> bool:
        """Return whether a certificate on this outcome can be assembled. Colluders vote for everything."""
        attempt = self.attempts[context]
        voters = self.votes[context][outcome] | self.liars & set(attempt.decryptors)
        return len(voters) >= attempt.quorum.threshold

    def genuine(self, certificate: Certificate) -> bool:
        """Return whether a threshold of decryptors signed what the certificate says."""
        attempt = self.attempts[certificate.context]
        votes, outcome = self.votes[certificate.context][certificate.outcome], certificate.outcome
        voters = {
            vote.member
            for vote in certificate.votes
            if (vote.context, vote.outcome) == (certificate.context, outcome)
            and (vote.member in votes or vote.member in self.liars)
        }
        return len(voters & set(attempt.decryptors)) >= attempt.quorum.threshold

    def certified(self, context: Context) -> list[bytes]:
        """Return the outcomes on which a certificate can be assembled: at most one."""
        return [outcome for outcome in self.votes[context] if self.threshold_met(context, outcome)]

    def take(self, member: str, message: Message) -> None:
        """Record a message that an honest member released, and check that it was allowed to."""
        if isinstance(message, Pairing):
            self._pairing(member, message)
        elif isinstance(message, Upload):
            self._upload(member, message)
        elif isinstance(message, Receipt):
            known = self.receipts.setdefault((message.context, member), message)
            assert known == message, f"{member} sent two receipts in one context"
        elif isinstance(message, Vote):
            self._vote(member, message)
        elif isinstance(message, Erased):
            self._erased(member, message)
        elif isinstance(message, Reveal):
            self._reveal(member, message)

    def _pairing(self, member: str, pairing: Pairing) -> None:
        """Check a pairing: one for each manifest, of at most three, each of fewer members than the one before (CARDS-18)."""
        manifest = self.manifests[pairing.manifest]
        known = self.pairings.setdefault((pairing.manifest, member), pairing)
        assert known == pairing, f"{member} sent two pairings for one manifest"
        place = (manifest.cohort, member)
        earlier = self.paired[place]
        if earlier and earlier[-1] == manifest:
            return
        assert place not in self.joined, f"{member} paired in a cohort that has formed or lapsed for it"
        assert manifest not in earlier, f"{member} went back to an earlier manifest"
        assert member in manifest.members
        if earlier:
            self.reached["paired afresh"] += 1
            assert {*manifest.members} < {*earlier[-1].members}, f"{member} paired under another manifest"
        earlier.append(manifest)
        assert len(earlier) <= MANIFESTS_MAX, f"{member} paired under {len(earlier)} manifests"
        self.reached["paired"] += 1

    def join(self, member: str, manifest: Manifest) -> None:
        """Note that a member holds the keys of its pairs, and check that it paired under this manifest last."""
        place = (manifest.cohort, member)
        known = self.joined.setdefault(place, manifest.hash)
        assert known == manifest.hash, f"{member} joined under two manifests, or after its keys had lapsed"
        assert self.paired[place][-1] == manifest, f"{member} joined under a manifest that it left"
        self.reached["joined"] += 1
        taken = {known for (cohort, _), known in self.joined.items() if cohort == manifest.cohort}
        if len(taken - {NEVER}) > 1:
            self.reached["joined under two manifests"] += 1

    def lapse(self, member: str, cohort: bytes) -> None:
        """Note that a member's keys were erased before it joined."""
        assert self.joined.setdefault((cohort, member), NEVER) == NEVER, f"{member} lapsed after it joined"
        self.reached["lapsed"] += 1

    def _upload(self, member: str, upload: Upload) -> None:
        self.rows[upload.header.digest] = upload
        known = self.uploads[upload.header.context].setdefault(member, upload)
        assert known == upload, f"{member} sent two uploads in one context"

    def _vote(self, member: str, vote: Vote) -> None:
        context = vote.context
        signed = [outcome for outcome, voters in self.votes[context].items() if member in voters]
        assert signed in ([], [vote.outcome]), f"{member} signed two outcomes of one context"
        assert signed or (context, member) not in self.erased, f"{member} voted after its report"
        self.votes[context][vote.outcome].add(member)
        certified = self.certified(context)
        assert len(certified) <= 1, "two certificates of one context can be assembled"
        self.check_closed(context)

    def check_closed(self, context: Context) -> None:
        """Check that neither VOID by votes nor VOID by erasure reveals anything."""
        for outcome in self.certified(context):
            survivors = self.sets.get(outcome)
            if survivors is None:
                self.reached["VOID certified"] += 1
                assert not self.shares[context], "shares were revealed in a context that is VOID"
                continue
            self.reached["set certified"] += 1
        attempt, quorum = self.attempts[context], self.attempts[context].quorum
        liars = self.liars & set(attempt.decryptors)
        silent = {m for (at, m), report in self.erased.items() if at == context and not any(report.revealed)}
        told = {m for at, m in self.revealed if at == context}
        if len(silent | liars) >= quorum.erasures_min:
            self.reached["erasure"] += 1
            assert len(told | liars) < quorum.threshold, "an Erasure and a sum of one context can be had"

    def erasure(self, context: Context, reports: Iterable[Erased]) -> bool:
        """Return whether members accept these reports as the end of an attempt."""
        held = {each.member for each in reports if self.erased.get((context, each.member), each) == each}
        return len(held) >= self.attempts[context].quorum.erasures_min

    def _erased(self, member: str, report: Erased) -> None:
        known = self.erased.setdefault((report.context, member), report)
        assert known == report, f"{member} sent two reports"
        told = self.revealed.get((report.context, member), bytes(32))
        assert report.revealed == told, f"{member} reported another reveal than it sent"
        self.check_closed(report.context)

    def _reveal(self, member: str, reveal: Reveal) -> None:
        """Check a reveal: exactly what the specification requires (wire: Reveals) for a certificate that the member was shown, each share as it was dealt."""
        context, attempt = reveal.context, self.attempts[reveal.context]
        assert (context, member) not in self.erased, f"{member} revealed after its report"
        self.revealed[context, member] = reveal.outcome
        assert reveal.outcome in self.shown[context, member], f"{member} revealed before it saw a certificate"
        survivors = {s.member: s for s in self.sets[reveal.outcome]}
        assert set(reveal.evicted) <= self.liars & survivors.keys(), f"{reveal.evicted} were evicted"
        assert len(reveal.evicted) <= attempt.quorum.colluders
        staying = [u for u in survivors if u not in reveal.evicted]
        own = {upload.header.digest for upload in [self.uploads[context].get(member)] if upload}
        good, seen = {*self.receipts[context, member].dealers, member}, self.delivered[context, member] | own
        dealers = [u for u in staying if u in good and survivors[u].digest in seen]
        place = attempt.decryptor_place[member]
        assert len(reveal.runs) == len(dealers)
        for dealer, run in zip(dealers, reveal.runs, strict=True):
            others = [other for other in attempt.members if other != dealer]
            due = [0, *(index for index, w in enumerate(others, start=1) if w not in staying)]
            assert len(run) == SHARE_BYTES * len(due), (
                f"{member} revealed other shares of {dealer} than are due"
            )
            row = self.rows[survivors[dealer].digest].share_rows[place]
            committed = b"".join(row[16 * index : 16 * index + 16] for index in due)
            assert share_commitments(context, dealer, member, due, run) == committed
            for index in due:
                self.shares[context][dealer, index].add(place)
        self.reached["reveal"] += 1
        self.reached["reveal after eviction"] += bool(reveal.evicted)
        self.check_closed(context)
        self._learn(context)

    def _known(self, context: Context, dealer: str, index: int) -> bool:
        attempt = self.attempts[context]
        colluding = {attempt.decryptor_place[liar] for liar in self.liars & set(attempt.decryptors)}
        return len(self.shares[context][dealer, index] | colluding) >= attempt.quorum.threshold

    def _readable(self, context: Context) -> Iterator[frozenset[str]]:
        """Yield the smallest sets of honest members whose sum of vectors is no longer masked.

        A member whose b_u is known is still masked by its unknown edges. So only whole components of those edges are
        readable, and only if every member's b is known.
        """
        attempt = self.attempts[context]
        honest = [member for member in attempt.members if member not in self.liars]
        bare = {u for u in self.uploads[context] if self._known(context, u, 0)}

        def masked(u: str, v: str) -> bool:
            ends = ((u, v), (v, u))
            return not any(
                self._known(context, one, 1 + attempt.neighbours_of(one).index(other)) for one, other in ends
            )

        left = set(bare)
        while left:
            component, reached = set[str](), {min(left)}
            while reached:
                u = reached.pop()
                component.add(u)
                reached |= {v for v in honest if v != u and v not in component and masked(u, v)}
            left -= component
            if component <= bare:
                yield frozenset(component)

    def _learn(self, context: Context) -> None:
        """Check that only the sum of the certified honest survivors is ever readable."""
        readable = list(self._readable(context))
        if not readable:
            return
        (outcome,) = self.certified(context)
        survivors = self.sets[outcome]
        honest = frozenset(s.member for s in survivors) - self.liars
        assert readable == [honest], f"{readable} can be read, certified are {honest}"
        assert len(honest) >= self.attempts[context].quorum.honest_min
        if context not in self.sums:
            self.reached["sum"] += 1
            self.sums[context] = honest
            self._check_periods(context)
            self._check_records(context)

    def _check_periods(self, context: Context) -> None:
        """Check that a step of a question and period has one sum over fresh records, ever (OPEN-19)."""
        attempt = self.attempts[context]
        if attempt.repeats:
            self.reached["repeated sum"] += 1
            return
        known = [
            each
            for each in self.sums
            if not self.attempts[each].repeats and step_of(self.attempts[each]) == step_of(attempt)
        ]
        assert known == [context], (
            f"step {attempt.terms.step} of period {attempt.manifest.period} was summed twice"
        )

    def _check_records(self, context: Context) -> None:
        """Check that all exact sums with a record have the same members, and one question for each extractor (analysis: Proofs)."""
        attempt = self.attempts[context]
        for other, honest in self.sums.items():
            if other == context or not self._shared(context, other):
                continue
            one, two = attempt.question, self.attempts[other].question
            assert (one.noise is None) == (two.noise is None), (
                "a record is in an exact sum and in a noisy one"
            )
            if one.noise is not None or attempt.terms.step != self.attempts[other].terms.step:
                continue
            self.reached["record summed again"] += 1
            assert honest == self.sums[context], "two exact sums of one record are over different members"
            assert one.extractor != two.extractor or one == two, (
                "a record answers two questions of one extractor"
            )
            withheld = attempt.terms.withheld, self.attempts[other].terms.withheld
            assert withheld[0] == withheld[1], "two exact sums of one record leave out different classes"

    def _shared(self, one: Context, other: Context) -> set[Record]:
        """Return the records that both sums contain."""
        return self._held(one) & self._held(other)

    def _held(self, context: Context) -> set[Record]:
        records = self.records[context]
        return {(member, each) for member in self.sums[context] for each in records[member]}


def step_of(attempt: Attempt) -> tuple[bytes, str, str]:
    """Return an attempt's question, period and step."""
    return attempt.question.digest, attempt.manifest.period, attempt.terms.step
