"""M0 as flows: check the study, answer yes or no, send the card, pair under the manifest, and forget the private keys.

    Enrolled ──the cards of a manifest: check them, store and send the pairing──▶ Paired ──the others' ciphertexts──▶ Ready

A manifest without this member, or keys that lapse first, end its part in the cohort. Nothing that depends on its records has left it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from client_sdk.api import Invitation, ShownInCohort
from client_sdk.effects import Flow
from client_sdk.errors import Declined, Misuse, NotEnrolled, PeerFault, fault_in
from client_sdk.progress import Progress, Step
from client_sdk.records import Records, Selection, select_again, select_canaries, select_held_out, select_rows
from client_sdk.reservations import Reservations, Run, State
from client_sdk.session import Session, ready_of, restored_fault
from client_sdk.site_report import report_canaries
from veilsum.calibration.rows import usable_rows
from veilsum.protocol.attempt import read_quorum
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import honest_rows
from veilsum.protocol.forms import count_noun
from veilsum.protocol.member import Enrolled, EnrolmentPhase, MemberPhase, Paired
from veilsum.protocol.messages import NO_CONTEXT, Cards, Ciphertexts, KeyCard, Roster, Study, cohort_id
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.rest import CohortView
from veilsum.protocol.sizing import Quorum
from veilsum.protocol.study import Content, Question, read_content
from veilsum.study.judging import check_cohort
from veilsum.study.vectors import count_classes, rows_bear_sum


def enrol_in_cohort(session: Session, cohort: bytes, records: Records | None) -> Flow[Quorum]:
    """Join a cohort, or resume joining it after a crash. For a joined cohort, only return its numbers.

    Args:
        session: the member.
        cohort: the cohort's id, 32 bytes.
        records: all records of this member; None if it has already answered for the study and period.

    Returns:
        The cohort's numbers; `caution()` warns about very small ones.

    Raises:
        Declined: too few records are free; the card stays here.
        PeerFault: the roster, the study, the coordinator, the manifest or the policy refuses.
        Misuse: the run was joined with other data.
        ClientError: the state is damaged or the coordinator can't be reached.
    """
    before = {run.number for run in session.store.ledger.list_runs()}
    invitation = yield from session.coordinator.fetch_invitation(cohort.hex())
    report_enrolment(session, invitation.cohort)
    phase, shown = yield from send_card(session, cohort, invitation, records, after=invitation.cohort.version)
    while isinstance(phase, EnrolmentPhase):
        if isinstance(shown, CohortView) and shown.state == "enrolling":
            report_enrolment(session, shown)
            asked_s = session.environment.monotonic_s()
            shown = yield from session.coordinator.fetch_cohort(shown.cohort, shown.version)
            yield from session.pace_poll(asked_s, news=shown.state != "enrolling")
        else:
            phase, shown = yield from pair_in_cohort(session, phase, shown, wait=True)
    ready = ready_of(phase)
    question = read_content(ready.study.content).question
    run = session.store.ledger.find_run(question.digest, ready.manifest.period)
    if records is not None and run is not None and run.number in before:
        _check_same(session, question, run, records)
    return read_quorum(ready.manifest, question)


def _check_same(session: Session, question: Question, run: Run, records: Records) -> None:
    """Refuse data that differ from those answered with: the run sums the rows that were reserved then."""
    if run.kind is PeriodKind.REHEARSAL or run.state in {State.DECLINED, State.FREE}:
        return
    ledger = session.store.ledger
    features, labels, ranks = ledger.load_rows(run)
    marks = ledger.marks_in(session.policy.federation)
    other = (select_again(records, question, marks, ranks, labels) != features).any(axis=1)
    if other.any():
        raise Misuse(
            f"{run.name} was joined with other data: {int(other.sum())} of its {len(other)} rows are not among these records. Its sum uses "
            "the earlier rows; join the next period with new records"
        )


def send_card(
    session: Session,
    cohort: bytes,
    invitation: Invitation,
    records: Records | None,
    *,
    after: int | None = None,
) -> Flow[tuple[MemberPhase, ShownInCohort]]:
    """Answer for a cohort's run, and send the card after a yes; with `after`, until enrolment ends or a long poll does.

    Args:
        session: the member.
        cohort: the cohort's id, 32 bytes.
        invitation: as shown.
        records: as `enrol_in_cohort` takes and refuses them.
        after: the cohort's version.

    Returns:
        The member's phase in the cohort; and the manifest with its cards if there is one by then, or else the cohort.
    """
    _check_newest_card(session, invitation.card)
    view, roster, study = invitation.cohort, session.accept_roster(invitation.roster), invitation.study
    if roster.key_of(session.member) != session.key.public:
        raise PeerFault(
            Cause.UNKNOWN_MEMBER, f"the roster lists another key for {session.member}", [session.member]
        )
    if (held := session.store.load_phase(cohort)) is not None:
        # A cohort that went on while this member was away may lack its card, and takes none any more.
        if isinstance(held.phase, Enrolled) and view.state == "enrolling":
            return held.phase, (yield from session.coordinator.send_card(held.phase.enrolment, after))
        return held.phase, view
    if view.state != "enrolling":
        raise NotEnrolled(f"cohort {cohort.hex()} is no longer enrolling ({view.state}): join the next one")
    content = session.read_study(roster, study)
    _check_names(roster, study, cohort, view)
    kind = content.check_period(view.period, repeats=view.repeats is not None)
    session.policy.check_study(content, kind)
    if content.rehearsal is not None and records is not None:
        yield from _check_canaries(session, cohort, content, kind, records)
    yield from _answer_run(session, content, view, records)
    enrolled, _ = Enrolled.begin_enrolment(
        session.member,
        roster,
        study,
        session.key,
        counter=view.counter,
        period=view.period,
        serial=_known_serial(session) + 1,
        now_s=session.environment.now_s(),
        repeats=_repeated_context(view),
        history=session.store.ledger.load_history(),
        random_bytes=session.environment.random_bytes,
    )
    assert isinstance(enrolled, Enrolled)
    session.store.store_card(enrolled.card, enrolled)
    return enrolled, (yield from session.coordinator.send_card(enrolled.enrolment, after))


def _check_canaries(
    session: Session, cohort: bytes, content: Content, kind: PeriodKind, records: Records
) -> Flow[None]:
    """Refuse to enrol while the canaries differ from the study's (member: Canaries). Nothing is stored or answered."""
    found = records.check_canaries(content, (yield from session.fetch_canaries(content)))
    if kind is PeriodKind.REHEARSAL:
        yield from report_canaries(session, cohort, found)
    if found.findings:
        raise PeerFault(
            Cause.CANARIES_DIFFER,
            f"{content.notes.name}: {found.describe()} Nothing was sent or spent: fix the data, then join again",
            [session.member],
        )
    session.report(Progress(Step.ENROLLING, detail=f"{content.notes.name}: {found.describe()}"))


def _known_serial(session: Session) -> int:
    """Return how many cards this folder knows that its key has signed."""
    known = session.store.newest_card()
    return 0 if known is None else known.serial


def _check_newest_card(session: Session, shown: bytes | None) -> None:
    """Refuse to enrol with a folder whose key has signed cards that it does not know (RESTORE-1, RESTORE-2).

    Raises:
        PeerFault: state-restored; or malformed, bad-signature and others if what is shown is no card of this member.
    """
    if shown is None:
        return
    try:
        card = KeyCard.from_bytes(shown)
        card.verify(session.key.public, "coordinator")
    except PeerFault as fault:
        raise PeerFault(fault.cause, f"no card of this member: {fault.detail}", ["coordinator"]) from fault
    known, serial = session.store.newest_card(), _known_serial(session)
    if card.serial > serial or (card.serial == serial and card != known):
        raise restored_fault(
            session.member, f"its key has signed {card.serial} cards, and the folder knows {serial} of them"
        )


def pair_in_cohort(
    session: Session, phase: EnrolmentPhase, shown: ShownInCohort | None, *, wait: bool
) -> Flow[tuple[MemberPhase, ShownInCohort]]:
    """Take the next step in a cohort that takes no cards any more: pair under a manifest, or take the others' ciphertexts.

    Args:
        session: the member.
        phase: its phase in the cohort.
        shown: what the coordinator showed last; None to ask.
        wait: for the others, for at most a long poll.

    Returns:
        The member's phase; and what is shown now.

    Raises:
        NotEnrolled: the keys of the card have lapsed.
        PeerFault: the cohort failed or formed without this member; or manifest, cards, ciphertexts or policy refuse.
    """
    if not isinstance(phase, Enrolled | Paired):
        raise NotEnrolled(
            f"cohort {phase.card.cohort.hex()} was not formed in time, and this member has erased its keys: join the next one"
        )
    cohort, coordinator, asked_s = phase.card.cohort, session.coordinator, session.environment.monotonic_s()
    held = session.store.load_phase(cohort)
    # While it did other work, this member may have paired afresh, or lapsed.
    if held is not None and held.phase != phase:
        return held.phase, (yield from coordinator.fetch_cohort(cohort.hex()))
    if isinstance(shown, Cards):
        paired = _pair_keys(session, phase, shown)
        following = yield from coordinator.send_pairing(cohort, paired.pairing, wait=wait)
        yield from session.pace_poll(asked_s, news=paired is not phase)
        return paired, following
    if isinstance(shown, Ciphertexts):
        # The keys of all pairs replace the private keys in one atomic write (LAPSE-3).
        ready, _ = phase.receive(shown, session.key, session.environment.now_s())
        session.store_phase(cohort, phase, ready, "")
        return ready, shown
    if shown is not None and shown.state == "failed":
        raise fault_in(shown)
    if isinstance(phase, Enrolled):
        return phase, (yield from coordinator.fetch_cards(cohort, session.member))
    if shown is None or session.member in shown.paired:
        # A member that stopped before it sent its pairing must not wait for the others first.
        manifest, wait = phase.manifest.hash, wait and shown is not None
        following = yield from coordinator.fetch_ciphertexts(cohort, session.member, manifest, wait=wait)
    else:
        following = yield from coordinator.send_pairing(cohort, phase.pairing, wait=wait)
    if isinstance(following, CohortView):
        report_enrolment(session, following)
    yield from session.pace_poll(asked_s, news=shown is None or not isinstance(following, CohortView))
    return phase, following


def _pair_keys(session: Session, phase: Enrolled | Paired, cards: Cards) -> Paired:
    """Check a manifest and its cards, and store the pairing before it leaves."""
    session.check_current(phase.roster)
    environment = session.environment
    following, _ = phase.pair(cards, session.key, environment.now_s(), environment.encapsulate)
    assert isinstance(following, Paired)
    if following is not phase:
        check_cohort(read_content(phase.study.content).question, following.manifest)
        session.policy.check_manifest(following.manifest)
        session.store_phase(phase.card.cohort, phase, following, "")
    return following


def report_enrolment(session: Session, view: CohortView) -> None:
    """Report which members a cohort that is forming waits for, and until when."""
    if not view.forming:
        return
    enrolling = view.state == "enrolling"
    session.report(
        Progress(
            Step.ENROLLING if enrolling else Step.PAIRING,
            phase=view.state,
            done=len(view.cards if enrolling else view.paired),
            total=len(view.members if enrolling else view.pairing_members),
            waiting_for=view.awaited_members,
            until_s=view.deadline_s,
        )
    )


def _check_names(roster: Roster, study: Study, cohort: bytes, view: CohortView) -> None:
    """Check that the cohort's id follows from what the card will be bound to: study, period and repeated attempt.

    Raises PeerFault(wrong-cohort) without a party: the roster may have been replaced since the cohort was opened.
    """
    if cohort != cohort_id(roster.hash, view.counter, study.hash, view.period, _repeated_context(view)):
        raise PeerFault(
            Cause.WRONG_COHORT,
            f"the cohort is not of the newest roster, number {roster.number}, with the study, period and counter that are shown. If the admin replaced "
            "the roster while the cohort enrolled, no one is at fault: wait for the next cohort, which the operator opens under the new roster",
        )


def _answer_run(session: Session, content: Content, view: CohortView, records: Records | None) -> Flow[None]:
    """Answer yes or no for good. After a yes, nothing about the data affects the messages (member: Selection).

    Raises:
        Declined: the answer is no, or was no before.
    """
    ledger, question, period = session.store.ledger, content.question, view.period
    kind = kind_of_period(period)
    run = ledger.find_run(question.digest, period)
    if run is None:
        if records is None:
            raise Misuse(f"{content.notes.name}, period {period}: pass your records to decide on taking part")
        base = None if view.repeats is None else _find_base_run(session, content, view)
        # Only now that records are asked for: a wrong clock may have been set right by then.
        ledger.give_up_expired(session.environment.now_s())
        if base is None:
            yield from _leave_others(session, question.digest, kind)
        found = _select_for_run(session, content, period, records, base)
        if base is not None:
            bears = _bears_again(session, content, view, base, found)
        else:
            # SELECT-4
            bears = (
                kind is not PeriodKind.DATA
                or question.noise is not None
                or rows_bear_sum(question, found.features, found.labels)
            )
        run = ledger.answer_run(
            content, period, found, mu_budget=session.policy.mu_budget, base=base, bears=bears
        )
        _report_selection(session, run, withholds=question.withhold is not None)
    elif view.repeats is not None and not _held_by(session, run, view):
        raise Declined(f"{run.name}: this member was not in the attempt that the run repeats")
    elif view.repeats is None and run.base is not None:
        raise Declined(
            f"{run.name}: this member answered for the records of an earlier run; join the next period"
        )
    if run.state is State.DECLINED or run.given_up:
        raise Declined(_explain_no(run, _reserving_runs(ledger, run)))
    ledger.renew_run(run, content.notes.expires)


def _leave_others(session: Session, question: bytes, kind: PeriodKind) -> Flow[None]:
    """Release what other periods of a question and kind reserve, once all attempts of them have ended (SELECT-7).

    Otherwise a party that names periods could have every record reserved, and count records by the answers.
    """
    ledger = session.store.ledger
    if ledger.idle_runs(question, kind):
        yield from session.learn_endings(runs=(question, kind))
    for run in ledger.idle_runs(question, kind):
        ledger.give_up(run)
        session.report(Progress(Step.ENROLLING, detail=f"{run.name}: given up for the newer period"))


def _select_for_run(
    session: Session, content: Content, period: str, records: Records, base: Run | None
) -> Selection:
    """Select the rows of a run, by the kind of its period; with `base`, the rows of that reservation again, under another extractor."""
    ledger, question = session.store.ledger, content.question
    marks, kind = ledger.marks_in(session.policy.federation), kind_of_period(period)
    if kind is PeriodKind.REHEARSAL:
        return select_canaries(records, question)
    if kind is PeriodKind.JUDGE:
        return select_held_out(records, question, marks, period, ledger.unjudged_records)
    if base is not None:
        _, labels, ranks = ledger.load_rows(base)
        features = select_again(records, question, marks, ranks, labels)
        there = usable_rows(features, labels, len(question.classes))
        missing = int(np.count_nonzero(~there))
        return Selection(features[there], labels[there], ranks[there], (), missing, 0, 0, 0)
    free = partial(ledger.free_records, question=question, mu_budget=session.policy.mu_budget)
    found = select_rows(records, question, marks, free)
    if question.withhold is None or not found.taken:
        return found
    uncounted = partial(ledger.free_records, question=question.model_copy(update={"withhold": None}))
    return replace(found, counted_out=found.taken - select_rows(records, question, marks, uncounted).taken)


def _bears_again(session: Session, content: Content, view: CohortView, base: Run, found: Selection) -> bool:
    """Whether a reservation bears one more sum under another extractor, beside those that it bore (SELECT-8)."""
    ledger, question = session.store.ledger, content.question
    history, (features, labels, _) = ledger.load_history(), ledger.load_rows(base)
    finished = history.finished_of(_repeated_context(view))
    if finished is None or len(found.labels) < len(labels):
        return False
    honest, first = len(finished.survivors) - question.a, finished.question
    reached = history.count_of(finished.terms.rows)
    rows = first.records.least * honest if reached is None else honest_rows(first, reached.sums)
    numbers, borne = ledger.other_sums(base, question.digest)
    published = ~np.isin(found.labels, finished.terms.withheld)
    held_before, held_now = (
        count_classes(each, *rows_of)
        for each, rows_of in ((first, (features, labels)), (question, (found.features, found.labels)))
    )
    return (
        rows >= question.rows_needed + borne
        and rows_bear_sum(
            question, found.features[published], found.labels[published], more=numbers, honest=honest
        )
        and (question.withhold is None or bool((held_now >= held_before).all()))
    )


def _find_base_run(session: Session, content: Content, view: CohortView) -> Run:
    """Find the reservation of the attempt that a run repeats under another extractor; noise is never repeated (member: Selection)."""
    base = session.store.ledger.run_of_attempt(_repeated_context(view))
    noisy = content.question.noise is not None or (base is not None and base.noisy)
    if base is None or base.period != view.period or noisy:
        raise Declined(
            f"{content.notes.name}, period {view.period}: this member was not in the attempt that the run repeats, or one of the two "
            "has noise"
        )
    return base


def _held_by(session: Session, run: Run, view: CohortView) -> bool:
    base = session.store.ledger.run_of_attempt(_repeated_context(view))
    return base is not None and base.number == run.reservation


def _report_selection(session: Session, run: Run, *, withholds: bool) -> None:
    """Report which rows a run sums, and for a study that withholds classes how often its records may still be counted."""
    if run.state is State.DECLINED:
        return
    records = count_noun(run.records, "record")
    if run.kind is PeriodKind.REHEARSAL:
        detail = f"{run.name}: a rehearsal over {run.rows} rows of canaries; nothing is reserved or spent"
    elif run.kind is PeriodKind.JUDGE:
        detail = f"{run.name}: {run.rows:,} held-out rows of {records} judge the heads, once in their life"
        detail += _list_skipped(
            {"judged before": run.taken, "unusable": run.unusable, "left to a later judgement": run.beyond}
        )
    else:
        detail = f"{run.name}: reserved {run.rows:,} rows of {records}"
        detail += _list_skipped(
            {
                "held out": run.held_out,
                "in other runs": run.taken,
                "unusable": run.unusable,
                "beyond the study's limits": run.beyond,
            }
        )
        if withholds and run.base is None:
            left = session.store.ledger.counts_left(run)
            detail += f". {count_noun(left, 'run')}, including this one, can still count these records"
    session.report(Progress(Step.ENROLLING, detail=detail))


def _list_skipped(rows: dict[str, int]) -> str:
    """List skipped rows by reason; empty if none were skipped."""
    found = ", ".join(f"{count:,} {reason}" for reason, count in rows.items() if count)
    return f"; skipped {found}" if found else ""


def _reserving_runs(ledger: Reservations, run: Run) -> list[str]:
    """Return the names of other exact runs that still reserve records of their own."""
    return [
        each.name
        for each in ledger.list_runs()
        if each.number != run.number
        and each.kind is PeriodKind.DATA
        and each.state is State.RESERVED
        and each.base is None
        and not (each.noisy or each.given_up)
    ]


def _explain_no(run: Run, reserving: Sequence[str]) -> str:
    if run.given_up:
        return f"{run.name}: this member gave the run up, for good; join the next period"
    if run.base is not None:
        return (
            f"{run.name}: these records can't be summed again under this extractor. Each of its rows must be there, with its label and usable features, "
            "and the sums under all extractors together must not reveal them. This member declines this period"
        )
    if run.rows >= run.least:
        return (
            f"{run.name}: the {run.rows} rows have too few non-zero features for an exact sum, which would reveal them. This member declines this "
            "period; use a denser extractor or a study with noise"
        )
    counted = remedy = ""
    if run.counted_out:
        counted = f"{run.counted_out} to records counted in three runs, "
        remedy = "Records that three runs have counted can join only a study that withholds no classes. "
    one = "Data without ids counts as one record. " if run.taken and not run.rows else ""
    if run.taken and reserving:
        remedy += (
            f"Records are reserved for {'; '.join(reserving)}. Give up a run that won't continue: `veilsum member ledger FOLDER --give-up STUDY "
            "--period PERIOD`. "
        )
    if run.taken:
        remedy += "To sum these records under another extractor, with the rest of the study unchanged, the operator runs the new study over the period of the first sum. "
    return (
        f"{run.name}: the study needs {run.least} rows, and {run.rows} were free when this member answered ({run.taken - run.counted_out} belonged to "
        f"reserved or spent records, {counted}{run.unusable} were unusable, {run.held_out} held out). {one}{remedy}The answer is final for this period, "
        "also with other records; join the next period with more free rows"
    )


def _repeated_context(view: CohortView) -> bytes:
    return NO_CONTEXT if view.repeats is None else bytes.fromhex(view.repeats)
