/** What a member's records have been asked for, and which of them are free (member: Ledger). Works on a member's state. */
import { hex, require_, same } from './encoding.mjs'
import * as m from './messages.mjs'
import { muOf, plainNoisyVector, discreteGaussian, variances } from './noise.mjs'
import { Ids, canonicalId, select } from './records.mjs'
import { countVector, exactVector, rowsVector } from './vectors.mjs'

const COORDINATOR = 'coordinator'
const NO_IDS = '0'.repeat(64)
const MOST_COUNTS = 3
const nameOf = (question, period) => `${hex(question)} ${period}`

export const newLedger = (secret, share) => ({ secret, share, runs: new Map(), marked: new Set(), studies: new Map() })

/** Whether this attempt's end is one of the proofs (LEDGER-5) that a reservation's vector was never opened. */
const isProof = (attempt, member) =>
  (attempt.end && attempt.end.reason !== 'none' && attempt.end.reason !== 'lost') ||
  (attempt.certificate && isSetWithout(m.decode(attempt.certificate), member))
const isSetWithout = (certificate, member) =>
  certificate.reason !== 'none' || !certificate.survivors.some((one) => one.member === member)

export class Ledger {
  /** `state.ledger` is made by `newLedger`; `budget` is a record's μ for life. */
  constructor(member, federation, budget = 0) {
    Object.assign(this, { member, federation, budget })
  }

  ids = (state) => new Ids(state.ledger.secret, this.federation, state.ledger.share)

  /** Contexts of `run` that count for its proofs: of a noisy run all, of an exact one its sums. */
  #attempts = (state, run, steps) =>
    run.contexts.map((context) => state.attempts.get(context)).filter((one) => run.noisy || steps.includes(one.link.step))
  isFreed = (state, run) =>
    run.state === 'given-up' && this.#attempts(state, run, ['sum']).every((one) => isProof(one, this.member))
  counts = (state, run) => !run.noisy && this.#attempts(state, run, ['count', 'rows']).some((one) => !isProof(one, this.member))

  /** Whether the record of `key` is free for a run of `study` (member: Ledger). */
  isFree(state, study, period, key) {
    const { marked } = state.ledger
    if (marked.has(key)) return false
    let [spent, counted] = [0, 0]
    for (const run of state.ledger.runs.values()) {
      if (!run.keys) continue
      const holds =
        key === NO_IDS ||
        run.keys.has(key) ||
        run.keys.has(NO_IDS) ||
        (study.noisy && run.noisy && run.unit === 'member' && run.question === hex(study.question))
      if (!holds) continue
      const freed = this.isFreed(state, run)
      if (!run.noisy) {
        const counting = this.counts(state, run)
        if (!freed || (counting && (study.noisy || key === NO_IDS))) return false
        counted += counting ? 1 : 0
      } else if (!freed) {
        if (!study.noisy || run.question === hex(study.question)) return false
        spent += run.mu * run.mu
      }
    }
    if (!study.noisy) return !(study.q.withhold && counted >= MOST_COUNTS)
    return key !== NO_IDS && spent + studyMu(study) ** 2 <= this.budget ** 2
  }

  /** The answer for a study and period, given once (SELECT-6). `state` is written before the card leaves. */
  answer(state, study, period, records) {
    const name = nameOf(study.question, period)
    const known = state.ledger.runs.get(name)
    if (known) return known.state !== 'no' && known.state !== 'given-up'
    for (const run of state.ledger.runs.values()) {
      if (run.question !== hex(study.question) || run.state !== 'reserved') continue
      for (const attempt of state.attempts.values())
        require_(attempt.end || attempt.recorded || !attempt.tookPart, 'outcome-missing', 'coordinator')
      run.state = this.#attempts(state, run, ['sum']).some((one) => one.recorded) ? 'spent' : 'given-up'
    }
    require_(!study.noisy || records.ids, 'malformed')
    const chosen = select(study, records, this.ids(state), (key) => this.isFree(state, study, period, hex(key)))
    state.ledger.runs.set(name, {
      question: hex(study.question),
      period,
      noisy: study.noisy,
      unit: study.q.noise?.unit,
      mu: study.noisy ? studyMu(study) : 0,
      state: chosen.yes ? 'reserved' : 'no',
      keys: chosen.yes ? new Set(chosen.keys.map(hex)) : null,
      features: chosen.yes ? chosen.features : null,
      labels: chosen.yes ? chosen.labels : null,
      ranks: chosen.yes ? chosen.ranks : null,
      contexts: [],
      vectors: new Map(),
      summedIn: null,
    })
    return chosen.yes
  }

  /** The answer in a cohort that repeats a sum: for the same question, the same reservation (member: Selection). */
  mayRepeat(state, study, period, context) {
    const run = state.ledger.runs.get(nameOf(study.question, period))
    const repeated = state.attempts.get(hex(context))
    const sums = repeated?.certificate && run?.contexts.includes(hex(context)) && repeated.link.step === 'sum'
    return Boolean(sums && !study.noisy && run.state !== 'given-up' && (!run.summedIn || same(run.summedIn, context)))
  }

  runOf = (state, facts) => state.ledger.runs.get(nameOf(facts.study.question, facts.manifest.period))

  /** Refuse an opening that the ledger does not allow (LEDGER-3, LEDGER-4, LEDGER-9). */
  allows(state, opening, facts) {
    const run = this.runOf(state, facts)
    require_(run?.keys && run.state !== 'given-up', 'policy-refused')
    for (const key of run.keys) require_(!state.ledger.marked.has(key), 'already-summed', COORDINATOR)
    if (run.summedIn && !run.noisy && opening.terms.step === 'sum')
      require_(same(facts.manifest.repeats, run.summedIn), facts.repeats ? 'repeat-mismatch' : 'already-summed', COORDINATOR)
    for (const other of state.ledger.runs.values()) {
      if (other === run || !other.keys || other.state !== 'spent' || other.noisy || run.noisy) continue
      for (const key of run.keys) require_(!other.keys.has(key), 'already-summed', COORDINATOR)
    }
  }

  /** The vector for an opened attempt: an exact one from the store, a noisy one with fresh noise. */
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

  onAnnounce(context, state) {
    const { link } = state.attempts.get(hex(context))
    const run = state.ledger.runs.get(nameOf(link.question, link.period))
    require_(run && run.state !== 'given-up', 'policy-refused')
    run.contexts.push(hex(context))
  }

  /** What an end changes, in the write that stores it. */
  onEnd(attempt, state) {
    const { link, end } = attempt
    const run = state.ledger.runs.get(nameOf(link.question, link.period))
    if (!run) return
    const sums = run.noisy || link.step === 'sum'
    const holds = attempt.certificate && m.decode(attempt.certificate).survivors.some((one) => one.member === this.member)
    if (sums && ((end.reason === 'none' && holds) || (end.reason === 'lost' && attempt.announced))) {
      run.state = 'spent'
      if (!run.noisy) run.summedIn ??= link.context
    } else if (run.state === 'reserved' && !run.noisy && (end.reason === 'lost' || (end.reason === 'none' && !holds)))
      run.state = 'given-up'
  }

  /** Give a run up that the coordinator shows as over, once the ends of all its attempts are known (member: Ledger). */
  onRunOver(state, facts) {
    const run = this.runOf(state, facts)
    const ended = run?.state === 'reserved' && run.contexts.every((context) => state.attempts.get(context).end)
    if (ended) run.state = 'given-up'
  }

  mark(state, records) {
    for (const id of records.ids ?? [Buffer.alloc(0)]) state.ledger.marked.add(hex(this.ids(state).key(canonicalId(id))))
  }

  /** A study's checks by the member's clock, ledger and owner (STUDY-5 to STUDY-7). */
  acceptStudy(state, study, now_s, approved) {
    const { name, version, expires } = study.content.notes
    require_(expires > now_s && expires <= now_s + 90 * 86400, 'study-refused', 'admin')
    const seen = state.ledger.studies.get(name)
    require_(!seen || version > seen.version || (version === seen.version && same(seen.hash, study.hash)), 'study-refused', 'admin')
    state.ledger.studies.set(name, { version, hash: study.hash })
    require_(approved.has(hex(study.approval)), 'study-refused', 'admin')
  }
}

const mus = new Map()
function studyMu(study) {
  const { epsilon, delta } = study.q.noise
  const name = `${epsilon} ${delta}`
  if (!mus.has(name)) mus.set(name, muOf(epsilon, delta))
  return mus.get(name)
}
