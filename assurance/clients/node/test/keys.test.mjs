/** Ed25519 keys of small order (protocol §3): a signature under one is refused, also where Node takes it. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { sha256, unhex } from '../encoding.mjs'
import { verify } from '../keys.mjs'

const IDENTITY = '01' + '00'.repeat(31)
const KEYS = {
  1: IDENTITY,
  2: `ec${'ff'.repeat(30)}7f`,
  4: '00'.repeat(32),
  8: '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
}

for (const [order, key] of Object.entries(KEYS)) {
  test(`a key of order ${order} signs nothing`, () => {
    const forged = unhex(IDENTITY + '00'.repeat(32)) // OpenSSL 3.0 takes it wherever the hash is a multiple of the order
    for (let i = 0; i < 200; i++) assert.equal(verify(unhex(key), sha256(Buffer.from(`${i}`)), forged), false)
  })
}
