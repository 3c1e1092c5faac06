/** Every case of assurance/vectors, by the tables of its README. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { FUNCTIONS } from './functions.mjs'

const FOLDER = new URL('../../../vectors/', import.meta.url)
export const load = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER)))
const FILES = [
  'boxes',
  'canaries',
  'contexts',
  'covers',
  'graph',
  'hashes',
  'heads',
  'ids',
  'invitations',
  'keys',
  'ledger',
  'masks',
  'merkle',
  'messages',
  'mlkem',
  'noisy',
  'outcomes',
  'packing',
  'pairs',
  'records',
  'results',
  'selections',
  'shamir',
  'signatures',
  'sizes',
  'studies',
  'transcripts',
  'vectors',
]

test('periods', { skip: 'it takes part in runs over data alone' }, () => {})

for (const name of FILES) {
  for (const one of load(name).cases) {
    const title = `${name}: ${one.function}: ${one.name}`
    const run = FUNCTIONS[one.function]
    if (!run) {
      test(title, { skip: `no function ${one.function}` }, () => {})
      continue
    }
    test(title, () => {
      if ('refused' in one) assert.throws(() => run(one.input), { cause: one.refused })
      else run(one.input, one.output)
    })
  }
}
