/** The life of a reservation (member: Ledger): which records are free, and when. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { ZERO, hex } from '../encoding.mjs'
import { Ledger, newLedger } from '../ledger.mjs'
import { newState } from '../member.mjs'
import { encode } from '../messages.mjs'
import { Study } from '../study.mjs'
import { load } from './stage.mjs'

const FEDERATION = Buffer.alloc(32, 7)
const content = (file, name) => JSON.parse(load(file).cases.find((one) => one.name === name).input.content)
const EXACT = new Study(content('vectors', "the page's example"))
const WITHHOLDING = new Study(content('vectors', 'all held'))
const NOISY = new Study(content('noisy', "the page's example"))
const KEYS = ['left', 'right']

function records(study, count, ids = true) {
  const { dim, classes } = study.q
  const features = Array.from({ length: count }, (_, i) => Array.from({ length: dim }, (_, j) => Math.sin(1 + i * dim + j)))
  return {
    features,
    labels: features.map((_, i) => classes[i % classes.length]),
    ids: ids ? features.map((_, i) => `id-${i}`) : null,
  }
}

function setting(share = 0) {
  const state = { ...newState(), ledger: newLedger(Buffer.alloc(32, 5), share) }
  const ledger = new Ledger('me', FEDERATION, 2)
  return {
    state,
    ledger,
    answer: (study, period, data = records(study, study.q.records.least ?? 20)) => ledger.answer(state, study, period, data),
    /** An attempt in which the member announced a vector. */
    announce(study, period, step, number) {
      const context = Buffer.alloc(32, number)
      const link = { cohort: ZERO, sequence: 0n, attempt: 0, question: study.question, period, step, repeats: ZERO, context }
      state.attempts.set(hex(context), { link, tookPart: true, announced: true, certificate: null, evicted: [], end: null })
      ledger.onAnnounce(context, state)
      return state.attempts.get(hex(context))
    },
    close(attempt, reason, survivors = []) {
      if (!['erased', 'lost'].includes(reason)) {
        const set = survivors.map((member) => ({ member, digest: ZERO }))
        attempt.certificate = encode('Certificate', { context: attempt.link.context, survivors: set, reason, votes: [] })
      }
      attempt.end = { ...attempt.link, reason, survivors: ZERO }
      ledger.onEnd(attempt, state)
    },
    free: (study, period) =>
      [...state.ledger.runs.values()][0] && ledger.isFree(state, study, period, [...[...state.ledger.runs.values()][0].keys][0]),
    run: (place = 0) => [...state.ledger.runs.values()][place],
  }
}

test('the answer is given once, and a reservation holds its records', () => {
  const s = setting()
  assert.equal(s.answer(EXACT, 'p1'), true)
  assert.equal(s.answer(EXACT, 'p1', records(EXACT, 1)), true)
  assert.equal(s.free(WITHHOLDING, 'p1'), false)
  assert.equal(setting().answer(EXACT, 'p1', records(EXACT, EXACT.q.records.least - 1)), false)
})

for (const [ending, frees] of [
  ['cancelled', true],
  ['erased', true],
  ['none', true],
  ['lost', false],
]) {
  test(`a run that was given up after ${ending} ${frees ? 'frees' : 'keeps'} its records`, () => {
    const s = setting()
    s.answer(EXACT, 'p1')
    const attempt = s.announce(EXACT, 'p1', 'sum', 1)
    s.run().state = 'given-up'
    assert.equal(s.free(EXACT, 'p2'), false)
    s.close(attempt, ending, ending === 'none' ? ['other'] : [])
    assert.equal(s.free(EXACT, 'p2'), frees)
  })
}

test('a VOID frees nothing while the run goes on, and another period gives it up', () => {
  const s = setting()
  s.answer(EXACT, 'p1')
  const attempt = s.announce(EXACT, 'p1', 'sum', 1)
  assert.throws(() => s.answer(EXACT, 'p2'), { cause: 'outcome-missing' })
  s.close(attempt, 'cancelled')
  assert.equal(s.free(EXACT, 'p2'), false)
  assert.equal(s.answer(EXACT, 'p2'), true)
  assert.equal(s.run().state, 'given-up')
  assert.equal(s.answer(EXACT, 'p1'), false)
})

test('a sum that holds the member spends its records for ever', () => {
  const s = setting()
  s.answer(EXACT, 'p1')
  s.close(s.announce(EXACT, 'p1', 'sum', 1), 'none', ['me', 'other'])
  assert.equal(s.run().state, 'spent')
  assert.equal(s.free(EXACT, 'p2'), false)
  assert.equal(s.free(NOISY, 'p2'), false)
})

test('records that three runs count, also in lost counts, are free only for a study that withholds nothing', () => {
  const s = setting()
  for (const [i, period] of ['p1', 'p2', 'p3'].entries()) {
    assert.equal(s.answer(WITHHOLDING, period), true)
    s.close(s.announce(WITHHOLDING, period, 'count', i + 1), i ? 'none' : 'lost', ['me'])
    s.run(i).state = 'given-up'
  }
  assert.equal(s.answer(WITHHOLDING, 'p4'), false)
  assert.equal(s.free(EXACT, 'p4'), true)
  assert.equal(s.free(NOISY, 'p4'), false)
})

test('a noisy run charges its records, and one of the same question takes none of them', () => {
  const s = setting()
  assert.equal(s.answer(NOISY, 'p1', records(NOISY, 20)), true)
  assert.equal(s.free(EXACT, 'p1'), false)
  assert.equal(s.free(NOISY, 'p2'), false)
})

test('data without ids is one record, which is never held out, and shares its place with no other', () => {
  const s = setting(0.999)
  assert.equal(s.answer(EXACT, 'p1', records(EXACT, EXACT.q.records.least, false)), true)
  assert.equal(s.ledger.isFree(s.state, WITHHOLDING, 'p1', 'ab'.repeat(32)), false)
  assert.equal(setting(0.999).answer(EXACT, 'p1'), false)
})

test('marked records are in no run', () => {
  const s = setting()
  s.ledger.mark(s.state, records(EXACT, 40))
  assert.equal(s.answer(EXACT, 'p1'), false)
})
