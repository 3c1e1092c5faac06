/** Ed25519 keys of small order (protocol §3): a signature that Node accepts under one is refused. */
import assert from 'node:assert/strict'
import { createPublicKey, verify as nodeVerify } from 'node:crypto'
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
    const forged = unhex(IDENTITY + '00'.repeat(32)) // holds wherever the hash is a multiple of the order
    const key_ = createPublicKey({
      key: Buffer.concat([unhex('302a300506032b6570032100'), unhex(key)]),
      format: 'der',
      type: 'spki',
    })
    const digests = Array.from({ length: 200 }, (_, i) => sha256(Buffer.from(`${i}`)))
    const accepted = digests.filter((digest) => nodeVerify(null, digest, key_, forged))
    assert.ok(accepted.length > 0)
    for (const digest of accepted) assert.equal(verify(unhex(key), digest, forged), false)
  })
}
