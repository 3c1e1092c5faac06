/** Plays over the ledger, and of invitations (assurance/vectors/README.md). */
import { Client } from '../client.mjs'
import { ZERO, hex, sha256, unhex } from '../encoding.mjs'
import { Ledger, newLedger } from '../ledger.mjs'
import { newState } from '../member.mjs'
import { cohortOf, decode, encode, rosterHash, studyHash } from '../messages.mjs'
import { Policy } from '../policy.mjs'
import { Study } from '../study.mjs'
import { canonicalId } from '../records.mjs'

const ME = 'm-0'
const isCertified = (reason) => !['erased', 'lost'].includes(reason)

export function playLedger({ mu_budget, watch, studies, data, steps }) {
  const state = { ...newState(), ledger: newLedger(Buffer.alloc(32, 5), 0) }
  const ledger = new Ledger(ME, Buffer.alloc(32, 7), mu_budget)
  const parsed = new Map(Object.entries(studies).map(([name, content]) => [name, Study.parse(Buffer.from(content))]))
  const attempts = new Map()
  let now_s = 1_000_000
  const recordsOf = (name) => ({ features: data[name].rows, labels: data[name].labels, ids: data[name].ids })
  const runOf = (name, period) => state.ledger.runs.get(`${hex(parsed.get(name).question)} ${period}`)
  const contextOf = (name) => (name ? sha256(Buffer.from(name)) : ZERO)
  const factsOf = (step) => ({
    study: parsed.get(step.study),
    manifest: { period: step.period, repeats: contextOf(step.repeats) },
    repeats: Boolean(step.repeats),
  })

  const acts = {
    answer({ answer: name, period, data: file, repeats }) {
      const study = parsed.get(name)
      const yes = repeats
        ? ledger.answerAgain(state, study, period, contextOf(repeats), recordsOf(file))
        : ledger.answer(state, study, period, recordsOf(file), now_s)
      return { yes }
    },
    open(step) {
      const facts = factsOf(step)
      const opening = { terms: { step: step.step, count: ZERO, rows: ZERO, withheld: [], evicted: [] } }
      ledger.allows(state, opening, facts)
      const { question, content } = facts.study
      const context = contextOf(step.open)
      const link = { cohort: ZERO, sequence: 0n, attempt: 0, question, step: step.step, context, ...facts.manifest }
      state.attempts.set(hex(context), {
        link,
        content,
        terms: opening.terms,
        evicted: [],
        announced: false,
        certificate: null,
        end: null,
      })
      attempts.set(step.open, { opening, facts })
      return {}
    },
    announce({ announce: name }) {
      const { opening, facts } = attempts.get(name)
      ledger.allows(state, opening, facts)
      state.attempts.get(hex(contextOf(name))).announced = true
      return facts.study.noisy ? {} : { vector: [...ledger.vector(state, opening, facts)] }
    },
    end({ end: name, as: reason, survivors = [] }) {
      const context = contextOf(name)
      const attempt = state.attempts.get(hex(context))
      const set = survivors.map((member) => ({ member, digest: ZERO }))
      if (isCertified(reason)) attempt.certificate = encode('Certificate', { context, survivors: set, reason, votes: [] })
      attempt.end = { ...attempt.link, reason, survivors: ZERO }
      return {}
    },
    'give-up'(step) {
      runOf(step['give-up'], step.period).given_up = true
      return {}
    },
    over({ over, period }) {
      ledger.onRunOver(state, { study: parsed.get(over), manifest: { period } })
      return {}
    },
    mark({ mark }) {
      ledger.mark(state, recordsOf(mark))
      return {}
    },
    clock({ clock }) {
      now_s = clock
      return {}
    },
  }

  const isFree = (study) => (id) => ledger.isFree(state, study, hex(ledger.ids(state).key(canonicalId(id))))
  const shown = () => ({
    runs: [...state.ledger.runs.values()].map((run) => [run.name, run.period, ledger.stateOf(state, run)]),
    free: Object.fromEntries([...parsed].map(([name, study]) => [name, watch.filter(isFree(study))])),
  })
  const said = steps.map((step) => ({ ...refusal(() => acts[Object.keys(step)[0]](step)), ...shown() }))
  return withLast(said)
}

/** Invitations to one member, which remembers what it was shown. */
export function playInvitations({ member, identity, federation, policy, data, steps }) {
  const home = {
    member,
    identity: unhex(identity),
    federation: unhex(federation),
    state: { ...newState(), ledger: newLedger(Buffer.alloc(32, 5), 0) },
  }
  let now_s = 0
  const records = { features: data.rows, labels: data.labels, ids: data.ids }
  const client = new Client({ home, url: 'http://127.0.0.1', records, policy: new Policy(policy), clock: () => now_s })
  const invite = (step) => {
    now_s = step.now_s
    const roster_hash = rosterHash(decode(unhex(step.roster)))
    const study = studyHash(decode(unhex(step.study)))
    const cohort = hex(cohortOf({ roster_hash, counter: BigInt(step.counter), study, period: step.period, repeats: ZERO }))
    const shown = { ...step, cohort: { cohort, counter: step.counter, period: step.period, repeats: null } }
    return { yes: client.answer(client.takeInvitation(shown)) }
  }
  return withLast(steps.map((step) => refusal(() => invite(step))))
}

function refusal(act) {
  try {
    return act()
  } catch (error) {
    if (!error.parties) throw error
    return { cause: error.cause, parties: error.parties }
  }
}

function withLast(steps) {
  const { cause, parties } = steps.at(-1)
  return { steps, ...(cause && { cause, parties }) }
}
