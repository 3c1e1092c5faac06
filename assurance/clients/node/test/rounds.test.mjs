/** A member that gets its inputs and the messages to it, in order, sends exactly the messages in the log. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { serialize } from 'node:v8'
import { hex, unhex } from '../encoding.mjs'
import { decode, encode } from '../messages.mjs'
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

test('a manifest excuses missing cards if it is without the member and gives the context', () => {
  const round = new Round('complete')
  const [{ context }] = round.data.attempts
  const opening = round.messages.find((bytes) => decode(bytes).type === 'Opening')
  const { manifest } = round.cards
  const one = round.member('member-0')
  const shown = (formed, link = context) =>
    one.checkLeftOut({ cohort: one.cohort, context: unhex(link) }, { manifest: formed && encode('Manifest', formed), opening })
  const missing = { cause: 'outcome-missing' }
  assert.throws(() => shown(manifest), missing)
  one.member = 'another'
  shown(manifest)
  assert.throws(() => shown(null), missing)
  assert.throws(() => shown(manifest, '02'.repeat(32)), missing)
  assert.throws(() => shown({ ...manifest, members: manifest.members.slice(1) }), missing)
})
