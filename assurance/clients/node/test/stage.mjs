/** Members of the published rounds: every drawn value comes from the file. */
import { readFileSync } from 'node:fs'
import { deserialize, serialize } from 'node:v8'
import { ZERO, hex, unhex } from '../encoding.mjs'
import * as messages from '../messages.mjs'
import { Member } from '../member.mjs'
import { checkRecord, checkTranscript } from '../result.mjs'
import { audit } from '../transcript.mjs'

const FOLDER = new URL('../../../vectors/', import.meta.url)
export const load = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER)))
const LATE = ['ErasureRequest', 'Erasure', 'Lost', 'Erased']

/** The coefficients of a dealing, 4 bytes each. */
export const coefficientsOf = (text) => Array.from({ length: text.length / 8 }, (_, i) => unhex(text).readUInt32LE(4 * i))

/** A member that enrolled with the published values, or has this state, and what it draws at its next upload. */
export function staged({ member, identity, now_s, encapsulate, state, ...run }) {
  const drawn = { b_u: null, salt: null, coefficients: null }
  const draw = { bytes: (_, what) => unhex(drawn[what]), coefficients: () => coefficientsOf(drawn.coefficients), encapsulate }
  const one = new Member({ member, identity: unhex(identity), clock: () => one.now_s, draw })
  one.now_s = now_s
  one.drawn = drawn
  if (state) [one.state, one.cohort] = [deserialize(state), cohortIn(deserialize(state))]
  else enrolIn(one, run)
  return one
}

const cohortIn = (state) => [...state.cohorts.values()].at(-1).cohort

/** Let a member send the published card for a cohort, which is its own from then on. */
export function enrolIn(one, { keys, ...run }) {
  const drawn = {
    x25519: unhex(keys.x25519_private),
    mlkem_seed: unhex(keys.mlkem_seed),
    nonce: unhex(keys.nonce),
    serial: BigInt(keys.serial),
  }
  one.enrolment = one.enrol({ ...run, drawn })
  one.cohort = cohortIn(one.state)
}

export class Round {
  constructor(name) {
    this.data = load(`round-${name}`)
    this.messages = this.data.messages.map(unhex)
    this.cards = messages.decode(unhex(this.data.cards))
    this.states = new Map()
    this.facts = new Map()
  }

  /** Every entry in order: [attempt (-1 while enrolling), place, from, to, bytes]. */
  *entries() {
    for (const [i, log] of [this.data.enrolment, ...this.data.attempts.map((attempt) => attempt.log)].entries()) {
      for (const [place, [from, to, index]] of log.entries())
        yield { attempt: i - 1, place, from, to, bytes: this.messages[index] }
    }
  }

  member(name, state) {
    const keys = this.data.members[name]
    const { manifest } = this.cards
    const pairings = this.data.enrolment
      .filter(([from]) => from === name)
      .map(([, , index]) => messages.decode(this.messages[index]))
      .filter((one) => one.type === 'Pairing')
    let seen = null
    let number = -1
    const encapsulate = (to, key, facts) => {
      if (seen !== hex(facts.hash)) [seen, number] = [hex(facts.hash), number + 1]
      const place = facts.pairs(name).to.indexOf(to)
      const pairing = pairings.find((one) => hex(one.manifest) === seen)
      const secret = keys.encapsulated[number]?.[to]
      return { ciphertext: pairing ? pairing.ciphertexts[place] : Buffer.alloc(1088), secret: secret ? unhex(secret) : ZERO }
    }
    const one = staged({
      member: name,
      identity: keys.identity,
      roster: unhex(this.data.roster),
      study: unhex(this.data.study),
      counter: manifest.counter,
      period: manifest.period,
      repeats: manifest.repeats,
      keys,
      now_s: this.data.now_s,
      encapsulate,
      state,
    })
    one.facts = this.facts
    return one
  }

  /** Show `one` an entry. Returns what it sends. A member that opens uploads, if the file has its vector. */
  show(one, entry) {
    const { type } = messages.decode(entry.bytes)
    one.now_s = LATE.includes(type) ? this.data.late_s : this.data.now_s
    const sent = one.receive(one.cohort, entry.bytes)
    const values = this.data.attempts[entry.attempt]?.members[one.member]
    if (type !== 'Opening' || sent.length || !values) return sent
    Object.assign(one.drawn, values)
    return [one.upload(one.cohort, values.vector)]
  }

  /** Bring a member to the state after the first `after` entries of the log of `attempt`. States on the way are kept for the next time. */
  replay(name, attempt, after) {
    const isBefore = (entry) => entry.attempt < attempt || (entry.attempt === attempt && !(entry.place >= after))
    const shown = [...this.entries()].filter((entry) => entry.to === name && isBefore(entry))
    if (!this.states.has(name)) this.states.set(name, [serialize(this.member(name).state)])
    const kept = this.states.get(name)
    const from = Math.min(kept.length - 1, shown.length)
    const one = this.member(name, kept[from])
    for (const entry of shown.slice(from)) {
      this.show(one, entry)
      kept.push(serialize(one.state))
    }
    return one
  }
}

const rounds = new Map()
export const roundOf = (name) => rounds.get(name) ?? rounds.set(name, new Round(name)).get(name)

/** Show a record to member-0, which took part in the attempt. */
export function showRecord(name, attempt, record) {
  const round = roundOf(name)
  const one = round.replay('member-0', attempt, Infinity)
  const { context, transcript } = round.data.attempts[attempt]
  const held = one.evidence(unhex(context))
  checkRecord(record, held)
  checkTranscript(audit(transcript.entries.map(unhex), unhex(transcript.signature), held.facts.federation), held, record)
  return []
}
