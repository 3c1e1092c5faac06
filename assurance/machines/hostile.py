"""A coordinator without rules and `a` colluders against honest members, over attempts, rounds and cohorts."""

from collections.abc import Iterable
from functools import cache

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assurance.machines.cast import PLACES, SHAPES, STUDIES, Place, Shape, cast, fork
from assurance.machines.forming import CARD_TRICKS, CIPHERTEXT_TRICKS, Draft
from assurance.machines.tally import TALLY
from assurance.machines.world import LIFE_S, Scene, World
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.member import Checked, Closed, EnrolmentPhase, Opened, Ready, Uploaded
from veilsum.protocol.messages import (
    Deliveries,
    Erasure,
    ErasureRequest,
    Evictions,
    Holder,
    Lost,
    Proof,
    Upload,
    VoidRequest,
    void_hash,
)

WHO = st.integers(0, 11)
"""A member; in the upper half of the range, all members."""
WHICH = st.sampled_from((0, 0, 0, 0, 1, 1, 2, 3))
"""An attempt, a chain or a document: 0 is the newest."""
MOSTLY_ALL = st.sampled_from((11, 11, 11, 0, 1, 2, 3, 4))
NEARLY_ALWAYS_ALL = st.sampled_from((*[11] * 9, 0, 1))
ALL = (1 << 8) - 1
SUBSET = st.sampled_from(
    (*[ALL] * 8, *(ALL ^ 1 << one for one in range(7)), *(ALL ^ 5 << one for one in range(5)), 3)
)
"""Sets of members as bits: mostly all, or all but one or two."""
OPENED = precondition(lambda self: self.world.scenes)
PAIRING = precondition(lambda self: self.world.is_pairing)
TWO_OPEN, SUMMED, COUNTED, REPEATED, ENROLLED, PAIRED, SPLIT = 6, 7, 8, 9, 10, 11, 12
"""Prologues beyond the steps of a round."""
LATER = (SUMMED, COUNTED, COUNTED, REPEATED, REPEATED)
SCENES_MAX = 8
REASONS = ("survivors-too-few", "cancelled")


@cache
def prologue(shape: Shape, liars: frozenset[str], stage: int, kind: int) -> World:
    """Play honestly up to a stage: nothing, uploads, receipts, votes, a round, or a second opening.

    Before a round: the cards of a cohort; the pairings under its first manifest; one member that holds keys under it, and the others,
    which hold keys under a second one without that member. The later stages: two open cohorts of one study and period without uploads; a certified sum of the plain study; a certified count;
    a sum that is being repeated under another extractor. `kind` is how the colluders deal their first uploads.
    """
    world = World(shape, liars, kind)
    if stage in {ENROLLED, PAIRED, SPLIT}:
        form_partly(world, stage)
        return world
    if stage == TWO_OPEN:
        open_two(world)
        return world
    withholding = PLACES[4].study in cast(shape).studies
    begin(world, PLACES[4 if stage == COUNTED and withholding else 0])
    for _ in range(4 if stage in {*LATER} else stage):
        go_on(world, world.honest, ALL)
    for member in world.honest:
        world.recount(member, 0)
    if stage == REPEATED and world.sets:
        cohort = world.repeat(next(iter(world.sets)), "another extractor")
        if cohort is not None:
            enter(world, world.open(cohort, world.chains[-1]))
    return world


def form_partly(world: World, stage: int) -> None:
    """Collect cards, let members pair, or show a part of them another manifest."""
    number = world.enrol(PLACES[0])
    assert number is not None
    if stage in {PAIRED, SPLIT}:
        pair(world, number, world.honest)
    if stage == SPLIT:
        split(world, number)


def open_two(world: World) -> None:
    """Form two cohorts of one study and period, and open an attempt in each."""
    for place in PLACES[:2]:
        cohort = world.form(place)
        assert cohort is not None
        scene = world.open(cohort, ())
        for liar in sorted(world.ghost.liars):
            world.scheme(liar, scene, world.kind)
        for member in world.honest:
            world.tell(member, cohort, scene.attempt.opening)


def pair(world: World, number: int, members: Iterable[str]) -> None:
    """Show members the cards of a cohort's newest manifest, and no ciphertexts."""
    draft = world.cohorts[number].drafts[-1]
    for member in members:
        if member in draft.manifest.member_places:
            world.tell(member, number, world.cohorts[number].cards_for(draft, member))
    for liar in draft.colluding:
        world.collude(liar, number, draft, 0)


def split(world: World, number: int) -> None:
    """Show one member the ciphertexts of the newest manifest, and the others another manifest without it, if enough are left."""
    cohort, alone = world.cohorts[number], world.honest[0]
    world.tell(alone, number, cohort.ciphertexts_for(cohort.drafts[-1], alone))
    world.draft(number, frozenset({alone}), second=False)
    world.usher(number, world.honest[1:])


def begin(world: World, place: Place) -> None:
    """Form a cohort, and open its first attempt."""
    cohort = world.form(place)
    assert cohort is not None
    enter(world, world.open(cohort, world.chains[-1]))


def enter(world: World, scene: Scene) -> None:
    """Have the colluders upload."""
    for liar in sorted(world.ghost.liars):
        if liar not in scene.uploads:
            world.scheme(liar, scene, world.kind)


def go_on(world: World, members: Iterable[str], subset: int, which: int = 0, patience: bool = True) -> None:  # noqa: FBT001, FBT002 - drawn
    """Take members to their next step in one of the attempts, as an honest coordinator would."""
    if not world.scenes:
        return
    scene = world.scenes[-1 - which % len(world.scenes)]
    if any(world.closes(each) for each in scene.documents):
        scene = world.open(scene.cohort, world.chains[-1])
        enter(world, scene)
    for member in members:
        _serve(world, scene, member, subset, patience=patience)


def _serve(world: World, scene: Scene, member: str, subset: int, *, patience: bool = True) -> None:
    """Take one member to its next step."""
    if scene.cohort not in world.disks[member].stored:
        return
    phase = world.disks[member].phase(scene.cohort)
    if isinstance(phase, EnrolmentPhase):
        world.usher(scene.cohort, [member])
        phase = world.disks[member].phase(scene.cohort)
    if isinstance(phase, Ready | Closed):
        world.recount(member, scene.cohort)
        world.tell(member, scene.cohort, scene.attempt.opening)
        world.upload(member, scene.cohort)
    elif isinstance(phase, Opened) and patience:
        world.upload(member, scene.cohort)
    elif isinstance(phase, Opened | Uploaded) and member in scene.attempt.decryptor_place:
        world.tell(member, scene.cohort, deliveries(scene, member, ALL, 0))
    elif isinstance(phase, Checked):
        world.tell(member, scene.cohort, world.propose(scene, chosen(scene, subset, 0)))
    else:
        for outcome in scene.outcomes:
            made = world.certificate(scene, outcome)
            if world.closes(made):
                world.close(scene, made)
                world.tell(member, scene.cohort, made)


class Hostile(RuleBasedStateMachine):
    """A machine whose rules are actions of the coordinator, a colluder, the admin, a clock or a crash."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        stage=st.sampled_from(
            (*range(TWO_OPEN), TWO_OPEN, TWO_OPEN, *LATER, ENROLLED, PAIRED, PAIRED, SPLIT)
        ),
        first=st.booleans(),
        kind=st.sampled_from((0, 0, 1, 2)),
    )
    def begin(self, shape: Shape, stage: int, first: bool, kind: int) -> None:  # noqa: FBT001 - drawn
        ids = cast(shape).ids
        liars = ids[: shape.colluders] if first else ids[-shape.colluders :]
        self.world: World = fork(prologue(shape, frozenset(liars), stage, kind))

    def _some(self, who: int) -> tuple[str, ...]:
        honest = self.world.honest
        return (honest[who],) if who < len(honest) else honest

    def _scene(self, which: int) -> Scene:
        return self.world.scenes[-1 - which % len(self.world.scenes)]

    @invariant()
    def count(self) -> None:
        """Count a step."""
        TALLY.steps += 1

    def _cohort(self, number: int) -> int:
        return number % max(1, len(self.world.cohorts))

    @rule(place=st.sampled_from((*PLACES[:-1], *PLACES)), without=st.integers(0, 11))
    def form(self, place: Place, without: int) -> None:
        """Form a cohort of any study and period, perhaps without one member, and open its run."""
        world = self.world
        cohort = world.form(place, self._some(without)[0] if without < len(world.honest) else "")
        if cohort is not None and len(world.scenes) < SCENES_MAX:
            enter(world, world.open(cohort, world.chains[-1]))

    @rule(place=st.sampled_from(PLACES), without=st.integers(0, 11))
    def enrol(self, place: Place, without: int) -> None:
        """Collect the cards of a cohort, perhaps without one member's."""
        honest = self.world.honest
        self.world.enrol(place, honest[without] if without < len(honest) else "")

    @PAIRING
    @rule(
        who=MOSTLY_ALL,
        cohort=st.integers(0, 5),
        without=st.integers(0, 7),
        further=st.booleans(),
        second=st.sampled_from((False, False, False, True)),
    )
    def draft(self, who: int, cohort: int, without: int, further: bool, second: bool) -> None:  # noqa: FBT001 - drawn
        """Make another manifest, without one more member or with a colluder's other card, and show it."""
        number, ids = self._cohort(cohort), cast(self.world.shape).ids
        left = self._draft(number, 0).manifest.members if further else ids
        gone = {*ids} - {*left} | {*ids[without : without + 1]}
        self.world.draft(number, frozenset(gone), second=second)
        self.show_cards(who, number, 0, 0)

    @PAIRING
    @rule(
        who=MOSTLY_ALL,
        cohort=st.integers(0, 5),
        which=WHICH,
        trick=st.sampled_from((*[0] * 8, *range(CARD_TRICKS + 1))),
    )
    def show_cards(self, who: int, cohort: int, which: int, trick: int) -> None:
        """Show the cards of any manifest, truly or not: members pair."""
        number = self._cohort(cohort)
        draft = self._draft(number, which)
        for member in self._some(who):
            if member in draft.manifest.member_places:
                shown = self.world.cohorts[number].cards_for(draft, member, trick)
                self.world.tell(member, number, shown)

    @PAIRING
    @rule(
        who=MOSTLY_ALL,
        cohort=st.integers(0, 5),
        which=WHICH,
        trick=st.sampled_from((*[0] * 8, *range(CIPHERTEXT_TRICKS + 1))),
        variant=st.integers(0, 1),
    )
    def show_ciphertexts(self, who: int, cohort: int, which: int, trick: int, variant: int) -> None:
        """Show the ciphertexts under any manifest, truly or not: members hold the keys of their pairs."""
        number = self._cohort(cohort)
        draft = self._draft(number, which)
        for member in self._some(who):
            if member in draft.manifest.member_places:
                formed = self.world.cohorts[number]
                shown = formed.ciphertexts_for(draft, member, trick, variant=variant)
                self.world.tell(member, number, shown)

    @PAIRING
    @rule(liar=st.integers(0, 1), cohort=st.integers(0, 5), which=WHICH, kind=st.integers(0, 2))
    def collude(self, liar: int, cohort: int, which: int, kind: int) -> None:
        """Have a colluder pair, honestly or not, and possibly again."""
        number, liars = self._cohort(cohort), sorted(self.world.ghost.liars)
        self.world.collude(liars[liar % len(liars)], number, self._draft(number, which), kind)

    @PAIRING
    @rule(who=NEARLY_ALWAYS_ALL, cohort=st.integers(0, 5), which=WHICH)
    def usher(self, who: int, cohort: int, which: int) -> None:
        """Continue to form a cohort as an honest coordinator would."""
        self.world.usher(self._cohort(cohort), self._some(who), which)

    def _draft(self, number: int, which: int) -> Draft:
        drafts = self.world.cohorts[number].drafts
        return drafts[-1 - which % len(drafts)]

    @rule(which=WHICH, study=st.sampled_from(("", "", "", *STUDIES)), twist=st.sampled_from((0, 0, 0, 1)))
    def repeat(self, which: int, study: str, twist: int) -> None:
        """Form a cohort that repeats a certified attempt, in the same study or another."""
        world = self.world
        if not world.sets:
            return
        context = list(world.sets)[-1 - which % len(world.sets)]
        own = next(
            each.collected.study
            for each in world.cohorts
            if each.id == world.ghost.attempts[context].manifest.cohort
        )
        cohort = world.repeat(context, study or own, twist)
        if cohort is not None and len(world.scenes) < SCENES_MAX:
            enter(world, world.open(cohort, world.chains[-1]))

    @rule(
        cohort=st.integers(0, 5),
        which=WHICH,
        step=st.sampled_from((0, 0, 0, 1, 2)),
        rests=st.sampled_from((0, 0, 0, 1, 2, 3)),
        manifest=st.sampled_from((0, 0, 0, 1)),
    )
    def open(self, cohort: int, which: int, step: int, rests: int, manifest: int) -> None:
        """Open another attempt, with any history that the coordinator can show, at any step, resting on any count."""
        world = self.world
        if world.cohorts and len(world.scenes) < SCENES_MAX:
            chain = world.chains[-1 - which % len(world.chains)]
            enter(world, world.open(self._cohort(cohort), chain, step, rests, manifest))

    @OPENED
    @rule(who=WHO, which=WHICH, silent=st.integers(0, 7))
    def enter(self, who: int, which: int, silent: int) -> None:
        """Show an opening; members upload, or wait."""
        world, scene = self.world, self._scene(which)
        for member in self._some(who):
            world.tell(member, scene.cohort, scene.attempt.opening)
            if silent:
                world.upload(member, scene.cohort)

    @OPENED
    @rule(who=MOSTLY_ALL, which=WHICH, subset=SUBSET, patience=st.sampled_from((True, True, False)))
    def nudge(self, who: int, which: int, subset: int, patience: bool) -> None:  # noqa: FBT001 - drawn
        """Continue as an honest coordinator would: runs that only deviate don't get far."""
        go_on(self.world, self._some(who), subset, which, patience)

    @OPENED
    @rule(who=NEARLY_ALWAYS_ALL, subset=SUBSET)
    def march(self, who: int, subset: int) -> None:
        """Continue every attempt that has not ended, with a different proposal in each."""
        for number, scene in enumerate(self.world.scenes):
            if not any(map(self.world.closes, scene.documents)):
                for member in self._some(who):
                    _serve(self.world, scene, member, subset if number % 2 else ALL)

    @rule(who=WHO, cohort=st.integers(0, 5))
    def upload(self, who: int, cohort: int) -> None:
        """Have members that waited upload."""
        for member in self._some(who):
            self.world.upload(member, self._cohort(cohort))

    @rule(who=MOSTLY_ALL, cohort=st.integers(0, 5))
    def recount(self, who: int, cohort: int) -> None:
        """Disclose a count to members."""
        for member in self._some(who):
            self.world.recount(member, self._cohort(cohort))

    @rule(who=MOSTLY_ALL, number=st.integers(0, 3), sure=st.integers(0, 3))
    def give_up(self, who: int, number: int, sure: int) -> None:
        """Have members give up a run."""
        if not sure:
            for member in self._some(who):
                self.world.give_up(member, number)

    @OPENED
    @rule(liar=st.integers(0, 1), which=WHICH, kind=st.integers(0, 3))
    def scheme(self, liar: int, which: int, kind: int) -> None:
        """Have a colluder upload, honestly or not, and possibly again."""
        scene, liars = self._scene(which), sorted(self.world.ghost.liars)
        if sum(len(scene.uploads.get(each, ())) for each in liars) < 4:
            self.world.scheme(liars[liar % len(liars)], scene, kind)

    @OPENED
    @rule(who=WHO, which=WHICH, subset=SUBSET, variant=st.integers(0, 3))
    def deliver(self, who: int, which: int, subset: int, variant: int) -> None:
        """Show boxes of some dealers, with either of a colluder's uploads."""
        scene = self._scene(which)
        for member in self._some(who):
            self.world.tell(member, scene.cohort, deliveries(scene, member, subset, variant))

    @OPENED
    @rule(
        who=WHO,
        which=WHICH,
        subset=SUBSET,
        variant=st.integers(0, 3),
        twist=st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4)),
    )
    def freeze(self, who: int, which: int, subset: int, variant: int, twist: int) -> None:
        """Propose a set, together with the set that the attempt rests on, or a forged one."""
        scene = self._scene(which)
        proposal = self.world.propose(scene, chosen(scene, subset, variant), twist)
        for member in self._some(who):
            self.world.tell(member, scene.cohort, proposal)

    @OPENED
    @rule(who=WHO, which=WHICH, reason=st.sampled_from(REASONS))
    def void(self, who: int, which: int, reason: str) -> None:
        """Ask for VOID."""
        scene = self._scene(which)
        scene.outcomes[void_hash(scene.context, reason)] = (), reason
        for member in self._some(who):
            self.world.tell(member, scene.cohort, VoidRequest(scene.context, reason))

    @OPENED
    @rule(who=MOSTLY_ALL, which=WHICH, patience=st.integers(0, 3))
    def ask(self, who: int, which: int, patience: int) -> None:
        """Ask for erasure reports, perhaps after the latest end."""
        scene = self._scene(which)
        if not patience:
            self.world.now_s = max(self.world.now_s, scene.attempt.terms.latest_end_s)
        for member in self._some(who):
            self.world.tell(member, scene.cohort, ErasureRequest(scene.context))

    @OPENED
    @rule(which=WHICH, outcome=WHICH, twist=st.integers(0, 8))
    def certify(self, which: int, outcome: int, twist: int) -> None:
        """Assemble a certificate on a proposed outcome, from the votes that exist."""
        scene = self._scene(which)
        outcomes = list(scene.outcomes)
        if outcomes:
            self.world.close(
                scene, self.world.certificate(scene, outcomes[-1 - outcome % len(outcomes)], twist)
            )

    @OPENED
    @rule(which=WHICH, subset=SUBSET, told=st.sampled_from((0, 1, 1, 1, 2, 3)))
    def lose(self, which: int, subset: int, told: int) -> None:
        """Close an attempt by some of the reports and the colluders' own, or by the admin."""
        world, scene = self.world, self._scene(which)
        if not told:
            world.close(scene, Lost.make_signed(cast(world.shape).federation.admin, context=scene.context))
            return
        reports = world.reports(scene, told)
        passed = [m for place, m in enumerate(scene.attempt.members) if subset >> place & 1 and m in reports]
        world.close(scene, Erasure(scene.context, tuple(reports[member] for member in passed)))

    @OPENED
    @rule(who=WHO, which=WHICH, document=WHICH, across=st.integers(0, 7))
    def show(self, who: int, which: int, document: int, across: int) -> None:
        """Show an attempt's closing document, in its own cohort or in another."""
        scene = self._scene(which)
        if scene.documents:
            shown = scene.documents[-1 - document % len(scene.documents)]
            for member in self._some(who):
                self.world.tell(member, scene.cohort if across else self._cohort(scene.cohort + 1), shown)

    @OPENED
    @rule(
        who=MOSTLY_ALL,
        which=WHICH,
        dealer=st.sampled_from((0, 0, 0, 0, 1, 2, 3)),
        index=st.sampled_from((0, 0, 1, 2)),
        more=st.sampled_from((False, False, True)),
    )
    def evict(self, who: int, which: int, dealer: int, index: int, more: bool) -> None:  # noqa: FBT001 - drawn
        """Show proofs that one or two dealers are false: true proofs or forged ones."""
        scene = self._scene(which)
        names = sorted(scene.uploads, key=lambda name: (name not in self.world.ghost.liars, name))
        accused = {names[(dealer + each) % len(names)] for each in range(1 + more)} if names else set()
        proofs = tuple(
            proof(scene, upload, index) for name in sorted(accused) for upload in scene.uploads[name][-1:]
        )
        for member in self._some(who):
            self.world.tell(member, scene.cohort, Evictions(scene.context, proofs))

    @rule(who=WHO, number=st.integers(0, 255), across=st.integers(0, 3))
    def replay(self, who: int, number: int, across: int) -> None:
        """Replay any earlier message to any member, in any cohort."""
        if self.world.sent:
            cohort, message = self.world.sent[-1 - number % len(self.world.sent)]
            for member in self._some(who):
                self.world.tell(member, self._cohort(cohort + across), message)

    @rule(who=WHO, cohort=st.integers(0, 5))
    def crash(self, who: int, cohort: int) -> None:
        """Restart members."""
        for member in self._some(who):
            self.world.crash(member, self._cohort(cohort))

    @rule(who=WHO, cohort=st.integers(0, 5), settle=st.booleans())
    def look(self, who: int, cohort: int, settle: bool) -> None:  # noqa: FBT001 - drawn
        """Let members look at their clocks, or learn that the result is out."""
        for member in self._some(who):
            if settle:
                self.world.settle(member, self._cohort(cohort))
            else:
                self.world.lapse(member, self._cohort(cohort))

    @rule(eighths=st.integers(0, 2))
    def wait(self, eighths: int) -> None:
        """Let time pass, up to a quarter of a round."""
        self.world.now_s += eighths * LIFE_S // 8

    def teardown(self) -> None:
        """Count what was reached."""
        if hasattr(self, "world"):
            TALLY.reached += self.world.ghost.reached
            TALLY.reached["stored bytes searched"] += sum(d.searched for d in self.world.disks.values())
            TALLY.receives += self.world.receives


def chosen(scene: Scene, subset: int, variant: int) -> list[Upload]:
    """Return one upload of each member in the subset, ordered by member; any upload of a colluder."""
    return [
        uploads[-1 - variant % len(uploads)]
        for place, member in enumerate(scene.attempt.members)
        if subset >> place & 1 and (uploads := scene.uploads.get(member))
    ]


def deliveries(scene: Scene, member: str, subset: int, variant: int) -> Deliveries:
    """Return the boxes for a member; a member that isn't a decryptor gets another's."""
    place = scene.attempt.decryptor_place.get(member, 0)
    return Deliveries(
        scene.context,
        tuple(
            scene.trees[upload.header.digest].delivery_to(upload, place)
            for upload in chosen(scene, subset, variant)
            if upload.header.member != member
        ),
    )


def proof(scene: Scene, upload: Upload, index: int) -> Proof:
    """Prove that a dealer is false, from its dealing if the coordinator knows it."""
    attempt: Attempt = scene.attempt
    trees, dealt = scene.trees[upload.header.digest], scene.dealt[upload.header.digest]
    holders = []
    for place, holder in enumerate(attempt.decryptors[: attempt.quorum.threshold]):
        share = dealt[place][36 * index : 36 * index + 36] if dealt else bytes([1, 0, 0, 0] * 9)
        path = tuple(trees.commitments.path_to(1 + place))
        holders.append(Holder(holder, share, upload.share_rows[place], path))
    commitments = b"".join(upload.secret_commitments)
    return Proof(upload.header, commitments, tuple(trees.commitments.path_to(0)), index, tuple(holders))
