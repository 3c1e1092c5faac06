/** Attacks on a member, on decoders, and on records: each is refused for its cause, names its parties, and changes nothing. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { serialize } from 'node:v8'
import { unhex } from '../encoding.mjs'
import { decode } from '../messages.mjs'
import { load, roundOf, showRecord } from './stage.mjs'

function bytesOf(attack, round) {
  if (attack.message !== undefined) return unhex(attack.message)
  const honest = round.messages[attack.honest]
  let [at, parts] = [0, []]
  for (const [position, removed, replacement] of attack.cuts) {
    parts.push(honest.subarray(at, position), unhex(replacement))
    at = position + removed
  }
  return Buffer.concat([...parts, honest.subarray(at)])
}

function refusalOf(act) {
  try {
    const [answer] = act()
    const refusal = answer && decode(answer)
    return refusal?.type === 'Refusal' ? { cause: refusal.cause } : { cause: `accepted (${refusal?.type})` }
  } catch (error) {
    if (!error.parties) throw error
    return { cause: error.cause, parties: error.parties }
  }
}

for (const [place, attack] of load('attacks').attacks.entries()) {
  const title = `attack ${place}: ${attack.rule}: ${attack.name}`
  if (attack.record) {
    test(title, () => {
      const honest = load('results').cases.find(({ input }) => input.round === attack.round && input.attempt === attack.attempt)
        .input.record
      const { cause, parties } = refusalOf(() => showRecord(attack.round, attack.attempt, { ...honest, ...attack.record }))
      assert.deepEqual([cause, parties], [attack.cause, attack.parties])
    })
  } else if (attack.to === 'coordinator') test(title, { skip: 'it attacks a coordinator' }, () => {})
  else if (attack.to) {
    test(title, () => {
      const round = roundOf(attack.round)
      const one = round.replay(attack.to, attack.attempt, attack.after)
      one.now_s = attack.now_s ?? round.data.now_s
      one.tick(one.cohort)
      const before = serialize(one.state)
      const { cause, parties } = refusalOf(() => one.receive(one.cohort, bytesOf(attack, round)))
      assert.equal(cause, attack.cause)
      if (!parties) return
      assert.deepEqual(parties, attack.parties)
      assert.ok(before.equals(serialize(one.state)), 'the state changed')
    })
  } else if (attack.message !== undefined) {
    test(title, () => {
      const { cause, parties } = refusalOf(() => [decode(unhex(attack.message)) && null])
      assert.deepEqual([cause, parties], [attack.cause, attack.parties])
    })
  } else test(title, { skip: 'it takes more than one message' }, () => {})
}
