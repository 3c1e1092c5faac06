/** Attacks of several messages, played to a member. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { serialize } from 'node:v8'
import { ZERO, unhex } from '../encoding.mjs'
import { decode } from '../messages.mjs'
import { enrolIn, load, staged } from './stage.mjs'

const { plays, messages } = load('plays')
const bytesOf = (index) => unhex(messages[index])

/** The run that a play starts with or a step enrols in, and the card's keys. */
const runOf = (step) => ({
  roster: bytesOf(step.roster),
  study: bytesOf(step.study),
  counter: BigInt(step.counter),
  period: step.period,
  repeats: unhex(step.repeats),
  keys: step,
})

function memberOf(play) {
  let step = null
  const encapsulate = (to, key, facts) => {
    const pairing = step.pairing === undefined ? null : decode(bytesOf(step.pairing))
    const place = facts.pairs(play.to).to.indexOf(to)
    return {
      ciphertext: pairing ? pairing.ciphertexts[place] : Buffer.alloc(1088),
      secret: step.secrets?.[to] ? unhex(step.secrets[to]) : ZERO,
    }
  }
  const one = staged({ member: play.to, identity: play.identity, ...runOf(play), now_s: play.now_s, encapsulate })
  return [one, (next) => (step = next)]
}

for (const [place, play] of plays.entries()) {
  const title = `play ${place}: ${play.rule}: ${play.name}`
  if (play.to === 'coordinator') {
    test(title, { skip: 'it attacks a coordinator' }, () => {})
    continue
  }
  test(title, () => {
    const [one, begin] = memberOf(play)
    const act = (step) => {
      begin(step)
      if (step.wait !== undefined) {
        one.now_s = step.wait
        return one.tick(one.cohort)
      }
      if (step.vector) {
        Object.assign(one.drawn, step)
        return one.upload(one.cohort, step.vector)
      }
      one.now_s = step.now_s
      if (step.enrol) return enrolIn(one, runOf(step))
      const message = bytesOf(step.take)
      if (step.unopened !== undefined) one.openToErase(one.cohort, bytesOf(step.unopened), decode(message).context)
      return one.receive(one.cohort, message)
    }
    const last = play.steps.at(-1)
    play.steps.slice(0, -1).forEach(act)
    if (play.ends === 'erased') {
      const holds = () => play.gone.map((secret) => serialize(one.state).includes(unhex(secret)))
      assert.ok(holds().every(Boolean))
      act(last)
      return assert.ok(!holds().some(Boolean))
    }
    if (play.ends === 'refusal') return assert.equal(decode(act(last)[0], 'Refusal').cause, play.cause)
    assert.throws(
      () => act(last),
      (error) => {
        assert.deepEqual([error.cause, error.parties], [play.cause, play.parties])
        return true
      },
    )
  })
}
