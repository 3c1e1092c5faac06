/** A member that gets its inputs and the messages to it, in order, sends exactly the messages in the log. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { serialize } from 'node:v8'
import { hex, unhex } from '../encoding.mjs'
import { Round } from './stage.mjs'

const CHEATS = { evicted: ['member-4'] }
/** Places in what a member sends of messages that get lost, and so stand in no log. */
const LOST = { voided: { 'member-0': [2, 2] } }

for (const name of ['complete', 'count', 'erased', 'evicted', 'lost', 'nominated', 'unpaired', 'voided']) {
  const round = new Round(name)
  for (const member of Object.keys(round.data.members)) {
    test(`round-${name}: ${member}`, { skip: CHEATS[name]?.includes(member) && 'it cheats' }, () => {
      const one = round.member(member)
      const expected = [...round.entries()].filter((entry) => entry.from === member)
      const sent = [one.enrolment]
      for (const entry of round.entries()) {
        if (entry.to === member) for (const bytes of round.show(one, entry)) sent.push(bytes)
      }
      for (const place of LOST[name]?.[member] ?? []) sent.splice(place, 1)
      sent.forEach((bytes, i) => assert.equal(hex(bytes), expected[i] && hex(expected[i].bytes), `message ${i}`))
      assert.equal(sent.length, expected.length)
    })
  }
}

test('the keys of a sequence are gone once a certificate has closed it', () => {
  const round = new Round('complete')
  const { mask_keys, box_keys } = round.data.attempts[0].members['member-0']
  const holds = (after) =>
    [...Object.values(mask_keys), ...Object.values(box_keys)].map((key) =>
      serialize(round.replay('member-0', 0, after).state).includes(unhex(key)),
    )
  assert.ok(holds(30).every(Boolean))
  assert.ok(!holds(Infinity).some(Boolean))
})
