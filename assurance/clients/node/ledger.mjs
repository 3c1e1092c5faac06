/**
 * What a member's records have been asked for, and which of them are free (member: Selection, Ledger). Works on a member's state.
 * A run's state follows from its answer, from whether it was given up, and from how its attempts ended.
 */
import { COORDINATOR, hex, require_, same } from './encoding.mjs'
import * as m from './messages.mjs'
import { plainNoisyVector, discreteGaussian, variances } from './noise.mjs'
import { muOfStudy } from './policy.mjs'
import { Ids, canonicalId, hasFeatures, select, selectAgain } from './records.mjs'
import { Study } from './study.mjs'
import { countVector, exactVector, rowsVector } from './vectors.mjs'

const NO_IDS = '0'.repeat(64)
const MOST_COUNTS = 3
const MONTHS_S = 90 * 86400
const nameOf = (question, period) => `${hex(question)} ${period}`

export const newLedger = (secret, share) => ({ secret, share, runs: new Map(), marked: new Set(), studies: new Map() })

export class Ledger {
  /** `state.ledger` is made by `newLedger`; `budget` is a record's μ for life. */
  constructor(member, federation, budget = 0) {
    Object.assign(this, { member, federation, budget })
  }

  ids = (state) => new Ids(state.ledger.secret, this.federation, state.ledger.share)
  runOf = (state, { study, manifest }) => state.ledger.runs.get(nameOf(study.question, manifest.period))
  #runOfAttempt = (state, { link }) => state.ledger.runs.get(nameOf(link.question, link.period))

  // What is known of a run. Runs that were answered for another run's reservation share its fate.

  #base = (state, run) => (run.base ? state.ledger.runs.get(run.base) : run)
  #holds = (certificate) => m.decode(certificate).survivors.some((one) => one.member === this.member)
  /** A certified set without the member: nothing replaces it for the member. */
  #isLeftOut = ({ certificate }) => certificate && m.decode(certificate).reason === 'none' && !this.#holds(certificate)
  /** A proof that the vector of an attempt was never opened (LEDGER-5). */
  #isProof = (attempt) => this.#isLeftOut(attempt) || (attempt.end && !['none', 'lost'].includes(attempt.end.reason))
  /** Whether an attempt is closed as `none` with the member, or as lost after its announcement (LEDGER-2). */
  #spends(attempt) {
    if (!attempt.announced || this.#isLeftOut(attempt)) return false
    const reason = attempt.end?.reason ?? (attempt.certificate && m.decode(attempt.certificate).reason)
    return reason === 'none' || reason === 'lost'
  }
  /** The attempts of a reservation that hold its vectors: of a noisy one all, of an exact one its sums. */
  #sums = (state, run) => this.#attempts(state, run).filter(({ link }) => run.noisy || link.step === 'sum')
  #attempts(state, run) {
    const base = this.#base(state, run)
    return [...state.attempts.values()].filter((attempt) => {
      const own = this.#runOfAttempt(state, attempt)
      return own && this.#base(state, own) === base
    })
  }
  /** The first sum of a reservation, which all others repeat (LEDGER-9). */
  #spending = (state, run) => this.#sums(state, run).find((attempt) => this.#spends(attempt))
  /** By its owner, or because no sum of it can follow for the member. */
  isGivenUp(state, run) {
    const ended = (one) => this.#isLeftOut(one) || one.end?.reason === 'lost'
    return run.given_up || (!run.noisy && !run.base && !this.#spending(state, run) && this.#attempts(state, run).some(ended))
  }
  #counts = (state, run) =>
    !run.noisy &&
    this.#attempts(state, run).some((one) => ['count', 'rows'].includes(one.link.step) && one.announced && !this.#isProof(one))

  /** `no`, `reserved`, `given up`, `free` or `spent` (member: Ledger). */
  stateOf(state, run) {
    if (!run.yes) return 'no'
    if (this.#spending(state, run)) return 'spent'
    if (!this.isGivenUp(state, run)) return 'reserved'
    const announced = this.#sums(state, run).filter((attempt) => attempt.announced)
    return announced.every((attempt) => this.#isProof(attempt)) ? 'free' : 'given up'
  }

  /** Whether the record of `key` is free for a run of `study` (member: Ledger). */
  isFree(state, study, key) {
    const { marked, runs } = state.ledger
    if (marked.has(key) || (key === NO_IDS ? marked.size : marked.has(NO_IDS))) return false
    let [squares, counts] = [0, 0]
    for (const run of runs.values()) {
      if (!run.yes || run.base) continue
      const own = study.noisy && run.noisy && run.question === hex(study.question)
      const alike = key === NO_IDS || run.keys.has(key) || run.keys.has(NO_IDS)
      if (!alike && !(own && run.unit === 'member')) continue
      const freed = this.stateOf(state, run) === 'free'
      if (run.noisy) {
        if (freed) continue
        if (!study.noisy || own) return false
        squares += run.mu ** 2
      } else {
        const counting = this.#counts(state, run)
        if (!freed || (counting && (study.noisy || !run.keys.has(key)))) return false
        counts += counting
      }
    }
    if (!study.noisy) return !study.q.withhold || counts < MOST_COUNTS
    return key !== NO_IDS && squares + muOfStudy(study) ** 2 <= this.budget ** 2
  }

  // Answers

  /** The answer for a study and period, given once (SELECT-6). `state` is written before the card leaves (SELECT-5). */
  answer(state, study, period, records, now_s) {
    const { runs } = state.ledger
    const known = runs.get(nameOf(study.question, period))
    if (known) return known.yes && !known.base && !this.isGivenUp(state, known)
    for (const run of runs.values()) if (run.expires <= now_s && this.stateOf(state, run) === 'reserved') run.given_up = true
    this.#leavePeriods(state, study)
    if (study.noisy && !records.ids) return false
    const chosen = select(study, records, this.ids(state), (key) => this.isFree(state, study, hex(key)))
    this.#store(state, study, period, chosen, null)
    return chosen.yes
  }

  /** SELECT-7: give up the question's run for another period, once each attempt is closed. */
  #leavePeriods(state, study) {
    const idle = [...state.ledger.runs.values()].filter(
      (run) => run.question === hex(study.question) && !run.base && ['reserved', 'given up'].includes(this.stateOf(state, run)),
    )
    for (const run of idle) {
      for (const { end, recorded } of this.#attempts(state, run)) require_(end || recorded, 'outcome-missing', COORDINATOR)
      run.given_up = true
    }
  }

  /** The answer in a cohort that repeats the attempt of `context`: for the records that it holds (SELECT-8). */
  answerAgain(state, study, period, context, records) {
    const repeated = state.attempts.get(hex(context))
    const own = repeated && this.#runOfAttempt(state, repeated)
    const base = own && this.#base(state, own)
    if (!base?.yes || base.period !== period || base.noisy || study.noisy) return false
    const name = nameOf(study.question, period)
    const ofBase = [...state.ledger.runs.values()].filter((run) => run.yes && this.#base(state, run) === base)
    if (!state.ledger.runs.has(name)) {
      if (ofBase.some((run) => run.extractor === study.q.extractor)) return false // one question for each extractor
      const chosen = selectAgain(study, records, this.ids(state), base)
      chosen.yes = chosen.labels.length === base.labels.length && this.#bearsAgain(state, study, base, repeated, chosen, ofBase)
      this.#store(state, study, period, chosen, `${base.question} ${period}`)
    }
    const run = state.ledger.runs.get(name)
    return run.yes && this.#base(state, run) === base && !this.isGivenUp(state, run)
  }

  #bearsAgain(state, study, base, repeated, { features, labels }, ofBase) {
    const { terms, certificate } = repeated
    const first = new Study(repeated.content)
    if (!certificate || m.decode(certificate).reason !== 'none') return false
    const honest = m.decode(certificate).survivors.length - study.a
    const reached = state.sums.get(hex(terms.rows))
    const rows = reached ? first.quarterRows(reached) / 4 : first.q.records.least * honest
    const others = ofBase.filter((run) => this.#mayHold(state, run))
    const sum = (values) => values.reduce((total, value) => total + value, 0)
    const published = labels.flatMap((label, i) => (terms.withheld.includes(label) ? [] : [i]))
    const kept = [features, labels].map((values) => published.map((i) => values[i]))
    const before = study.q.withhold ? countVector(first, base.features, base.labels) : []
    const after = study.q.withhold ? countVector(study, features, labels) : []
    return (
      rows >= study.needWhole + sum(others.map((run) => run.borne)) &&
      hasFeatures(study, ...kept, honest, sum(others.map((run) => run.numbers))) &&
      before.every((bit, c) => bit <= after[c])
    )
  }
  /** Whether a sum of this very question may come, or hold the records. */
  #mayHold = (state, run) =>
    !run.given_up ||
    this.#sums(state, run).some((one) => this.#runOfAttempt(state, one) === run && one.announced && !this.#isProof(one))

  #store(state, study, period, chosen, base) {
    const { rows_per_id } = study.q.records
    state.ledger.runs.set(nameOf(study.question, period), {
      question: hex(study.question),
      extractor: study.q.extractor,
      name: study.content.notes.name,
      expires: study.content.notes.expires,
      period,
      base,
      noisy: study.noisy,
      unit: study.q.noise?.unit,
      mu: study.noisy ? muOfStudy(study) : 0,
      numbers: rows_per_id * study.length,
      borne: rows_per_id * Math.ceil((2 * study.length) / (study.q.dim - 1)),
      given_up: false,
      yes: chosen.yes,
      keys: new Set(chosen.yes ? chosen.keys.map(hex) : []),
      features: chosen.yes ? chosen.features : null,
      labels: chosen.yes ? chosen.labels : null,
      ranks: chosen.yes ? chosen.ranks : null,
      vectors: new Map(),
    })
  }

  // Openings and vectors

  /** Refuse an opening or an announcement that the ledger does not allow (LEDGER-3, LEDGER-4, LEDGER-9). */
  allows(state, opening, facts) {
    const run = this.runOf(state, facts)
    require_(run?.yes && !this.isGivenUp(state, run), 'policy-refused')
    const { keys } = this.#base(state, run)
    const summed = this.#spending(state, run)
    for (const key of keys) require_(summed || !state.ledger.marked.has(key), 'already-summed')
    for (const other of state.ledger.runs.values()) {
      const apart = this.#base(state, other) !== this.#base(state, run) && !other.noisy && !run.noisy
      if (apart && this.stateOf(state, other) === 'spent')
        for (const key of keys) require_(!other.keys.has(key), 'already-summed')
    }
    if (run.noisy || opening.terms.step !== 'sum') return
    const first = summed && (summed.end?.reason ?? 'none') === 'none' ? summed.link.context : null
    if (facts.repeats) require_(first && same(facts.manifest.repeats, first), 'repeat-mismatch', COORDINATOR)
    else require_(!run.base && !summed, 'repeat-mismatch', COORDINATOR)
  }

  /** The vector for an opened attempt: an exact one from the store, a noisy one with fresh noise (LEDGER-8). */
  vector(state, opening, facts, material) {
    const run = this.runOf(state, facts)
    const { terms } = opening
    const { study, manifest } = facts
    if (study.noisy) {
      const all = variances(study, terms.step, manifest.n_min)
      return plainNoisyVector(study, terms.step, run.features, run.labels, material).map(
        (value, i) => BigInt(value) + discreteGaussian(all[i]),
      )
    }
    const name = `${terms.step} ${terms.withheld.join()}`
    if (!run.vectors.has(name)) {
      const make = { count: countVector, rows: rowsVector, sum: exactVector }[terms.step]
      run.vectors.set(name, make(study, run.features, run.labels, terms.withheld))
    }
    return run.vectors.get(name)
  }

  /** Give a run up that the coordinator shows as over, once the ends of all its attempts are known (member: Ledger). */
  onRunOver(state, facts) {
    const run = this.runOf(state, facts)
    const known = run?.yes && !run.base && this.#attempts(state, run).every((attempt) => attempt.end)
    if (known && this.stateOf(state, run) !== 'spent') run.given_up = true
  }

  mark(state, records) {
    for (const id of records.ids ?? [Buffer.alloc(0)]) state.ledger.marked.add(hex(this.ids(state).key(canonicalId(id))))
  }

  /** A study's checks by the member's clock and ledger, which then knows its version (STUDY-5, STUDY-6). */
  seeStudy(state, study, now_s) {
    const { name, version, expires } = study.content.notes
    require_(expires > now_s && expires <= now_s + MONTHS_S, 'study-refused', 'admin')
    const seen = state.ledger.studies.get(name)
    require_(
      !seen || version > seen.version || (version === seen.version && same(seen.hash, study.hash)),
      'study-refused',
      'admin',
    )
    state.ledger.studies.set(name, { version, hash: study.hash })
    for (const run of state.ledger.runs.values())
      if (run.question === hex(study.question)) run.expires = Math.max(run.expires, expires)
  }
}
