/** Rings, packing, masks and Shamir's shares (wire: Keys). Vectors are BigUint64Array; a store wraps modulo 2^64. */
import { randomBytes } from 'node:crypto'
import { require_ } from './encoding.mjs'
import { keystream } from './keys.mjs'

export const CHUNK_ELEMENTS = 2 ** 20
const P = 2 ** 31 - 1
const LIMBS = 9

/** The low `bits` of each element, LSB first. */
export function pack(elements, bits) {
  const out = Buffer.alloc(Math.ceil((elements.length * bits) / 8))
  let rest = 0n
  let held = 0
  let at = 0
  for (const element of elements) {
    rest |= BigInt.asUintN(bits, element) << BigInt(held)
    for (held += bits; held >= 8; held -= 8, rest >>= 8n) out[at++] = Number(rest & 255n)
  }
  if (held) out[at] = Number(rest)
  return out
}

export function unpack(packed, bits, count) {
  require_(packed.length === Math.ceil((count * bits) / 8), 'chunk-mismatch')
  const words = new BigUint64Array(count)
  let rest = 0n
  let held = 0
  let at = 0
  for (let i = 0; i < count; i++) {
    for (; held < bits; held += 8) rest |= BigInt(packed[at++]) << BigInt(held)
    words[i] = BigInt.asUintN(bits, rest)
    rest >>= BigInt(bits)
    held -= bits
  }
  require_(rest === 0n, 'chunk-mismatch')
  return words
}

export const centred = (word, bits) => BigInt.asIntN(bits, word)

/** G(seed): `count` words from element `offset` on, modulo 2^bits. */
export function mask(seed, bits, offset, count) {
  const size = bits <= 32 ? 4 : 8
  const bytes = keystream(seed, offset * size, count * size)
  const words = new BigUint64Array(count)
  for (let i = 0; i < count; i++) {
    words[i] = BigInt.asUintN(bits, size === 4 ? BigInt(bytes.readUInt32LE(4 * i)) : bytes.readBigUInt64LE(8 * i))
  }
  return words
}

/** The packed chunk of `elements` from `offset` on, under the masks of `added` and without those of `subtracted`. */
export function masked(elements, bits, offset, added, subtracted) {
  const words = BigUint64Array.from(elements, (element) => BigInt.asUintN(64, BigInt(element)))
  for (const [seeds, sign] of [
    [added, 1n],
    [subtracted, -1n],
  ]) {
    for (const seed of seeds) mask(seed, bits, offset, words.length).forEach((word, i) => (words[i] += sign * word))
  }
  return pack(words, bits)
}

const times = (a, b) => (((a * (b >>> 16)) % P) * 65536 + a * (b & 65535)) % P

function limbsOf(secret) {
  let rest = BigInt(`0x${Buffer.from(secret).reverse().toString('hex')}`)
  return Array.from({ length: LIMBS }, () => {
    const limb = Number(rest & 0x3fffffffn)
    rest >>= 30n
    return limb
  })
}

/** Uniform numbers below p. */
export function drawCoefficients(count) {
  const out = []
  while (out.length < count) {
    const bytes = randomBytes(4 * (count - out.length) + 4)
    for (let i = 0; i + 4 <= bytes.length && out.length < count; i += 4) {
      const word = bytes.readUInt32LE(i) >>> 1
      if (word < P) out.push(word)
    }
  }
  return out
}

/** Shares by holder and secret. `coefficients[degree - 1]` has nine numbers for each secret. */
export function deal(secrets, holders, coefficients) {
  const limbs = secrets.flatMap(limbsOf)
  return Array.from({ length: holders }, (_, position) => {
    const values = limbs.map((limb, place) => {
      let sum = 0
      for (let degree = coefficients.length; degree > 0; degree--)
        sum = times((sum + coefficients[degree - 1][place]) % P, position + 1)
      return (sum + limb) % P
    })
    return secrets.map((_, index) => {
      const share = Buffer.alloc(4 * LIMBS)
      for (let limb = 0; limb < LIMBS; limb++) share.writeUInt32LE(values[LIMBS * index + limb], 4 * limb)
      return share
    })
  })
}

export const shareIsBelowP = (share) => {
  for (let i = 0; i < share.length; i += 4) if (share.readUInt32LE(i) >= P) return false
  return true
}

const inverse = (value) => {
  let result = 1
  for (let exponent = P - 2, base = value; exponent; exponent = Math.floor(exponent / 2), base = times(base, base))
    if (exponent % 2) result = times(result, base)
  return result
}

/** The secret that shares at `positions` (from 0) recover; null if it is not 32 bytes. */
export function recover(positions, shares) {
  const well = positions.length > 0 && positions.length === shares.length && new Set(positions).size === positions.length
  require_(well && positions.every((position) => position >= 0), 'share-invalid')
  require_(
    shares.every((share) => share.length === 4 * LIMBS && shareIsBelowP(share)),
    'share-invalid',
  )
  const weights = positions.map((position, i) =>
    positions.reduce((product, other, j) => {
      if (i === j) return product
      const factor = times(other + 1, inverse((other - position + P) % P))
      return times(product, factor)
    }, 1),
  )
  let secret = 0n
  for (let limb = LIMBS - 1; limb >= 0; limb--) {
    const value = shares.reduce((sum, share, i) => (sum + times(weights[i], share.readUInt32LE(4 * limb))) % P, 0)
    if (value >= (limb === LIMBS - 1 ? 2 ** 16 : 2 ** 30)) return null
    secret = (secret << 30n) | BigInt(value)
  }
  return Buffer.from(secret.toString(16).padStart(64, '0'), 'hex').reverse()
}
