/** Signatures, key agreement, derivations, keystreams and boxes (wire: Signatures; wire: Keys). */
import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  hkdfSync,
  sign as nodeSign,
  verify as nodeVerify,
} from 'node:crypto'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import { Fault, H, info, require_, u64 } from './encoding.mjs'

const DER = {
  ed25519: {
    private: Buffer.from('302e020100300506032b657004220420', 'hex'),
    public: Buffer.from('302a300506032b6570032100', 'hex'),
  },
  x25519: {
    private: Buffer.from('302e020100300506032b656e04220420', 'hex'),
    public: Buffer.from('302a300506032b656e032100', 'hex'),
  },
}
const privateKey = (curve, raw) =>
  createPrivateKey({ key: Buffer.concat([DER[curve].private, raw]), format: 'der', type: 'pkcs8' })
const publicKey = (curve, raw) => createPublicKey({ key: Buffer.concat([DER[curve].public, raw]), format: 'der', type: 'spki' })
export const publicOf = (curve, raw) =>
  createPublicKey(privateKey(curve, raw)).export({ format: 'der', type: 'spki' }).subarray(-32)

/** Sign `digest` with the Ed25519 seed. */
export const sign = (seed, digest) => nodeSign(null, digest, privateKey('ed25519', seed))

const P = 2n ** 255n - 19n
const fromLittle = (bytes) => BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`)
const modulo = (value) => ((value % P) + P) % P
const power = (base, exponent) => {
  let result = 1n
  for (; exponent; exponent >>= 1n, base = modulo(base * base)) if (exponent & 1n) result = modulo(result * base)
  return result
}
const D = modulo(-121665n * power(121666n, P - 2n))
/** Whether an Ed25519 key has small order: 1, 2 or 4 (y is ±1 or 0), or 8 (it doubles to y = 0, so y² = −x² on the curve). */
function hasSmallOrder(raw) {
  const y = modulo(fromLittle(raw) & (2n ** 255n - 1n))
  const y2 = modulo(y * y)
  return y2 === 0n || y2 === 1n || modulo(2n * y2 - 1n + D * modulo(y2 * y2)) === 0n
}

/** Keys that signatures were checked with, as Node takes them; null for those of small order. */
const signers = new Map()
function signerOf(raw) {
  const name = Buffer.from(raw).toString('hex')
  if (!signers.has(name)) signers.set(name, hasSmallOrder(raw) ? null : publicKey('ed25519', raw))
  return signers.get(name)
}

/** Whether `signature` over `digest` is that of `key`, cofactorless; never under a key of small order. */
export function verify(key, digest, signature) {
  try {
    const signer = signerOf(key)
    return signer !== null && nodeVerify(null, digest, signer, signature)
  } catch {
    return false
  }
}

/** X25519. Refuses a public key of low order. */
export function agree(secret, peer, ...parties) {
  try {
    return diffieHellman({ privateKey: privateKey('x25519', secret), publicKey: publicKey('x25519', peer) })
  } catch {
    throw new Fault('low-order-point', ...parties)
  }
}

/** One spelling for all encodings of an X25519 key. */
export const canonicalX25519 = (raw) => modulo(fromLittle(raw) & (2n ** 255n - 1n)).toString(16)

/** FIPS 203, §7.2: the length, and every coefficient below 3,329. */
export function mlkemKeyIsValid(key) {
  if (key.length !== 1184) return false
  for (let i = 0; i < 1152; i += 3) {
    if ((key[i] | ((key[i + 1] & 15) << 8)) >= 3329 || ((key[i + 1] >> 4) | (key[i + 2] << 4)) >= 3329) return false
  }
  return true
}

export const mlkemHash = (key) => H('mlkem-key', key)
export const mlkemPublic = (seed) => Buffer.from(ml_kem768.keygen(seed).publicKey)

/** Encapsulate to `key`. `message` is the m of FIPS 203, for tests. */
export function encapsulate(key, message) {
  const { cipherText, sharedSecret } = ml_kem768.encapsulate(key, message)
  return { ciphertext: Buffer.from(cipherText), secret: Buffer.from(sharedSecret) }
}

export function decapsulate(seed, ciphertext) {
  require_(ciphertext.length === 1088, 'malformed')
  return Buffer.from(ml_kem768.decapsulate(ciphertext, ml_kem768.keygen(seed).secretKey))
}

const hkdf = (key, salt, about) => Buffer.from(hkdfSync('sha256', key, salt, about, 32))

/** K_0 of a pair (wire: Keys). `pair`: from, to, hash, ciphertext, and the secret that `from` encapsulated. */
export const rootKey = (purpose, shared, pair, cohort, manifest) =>
  hkdf(
    Buffer.concat([shared, pair.secret]),
    manifest,
    info(purpose, cohort, pair.from, pair.to, pair.hash, H('ciphertext', pair.ciphertext)),
  )
/** K of `sequence` from that of the sequence before (wire: Keys). */
export const ratchet = (key, cohort, sequence) => hkdf(key, '', info('ratchet', cohort, u64(sequence)))
export const maskSeed = (key, context, low, high) => hkdf(key, context, info('mask-seed', low, high))
export const boxKey = (key, context, salt, dealer, decryptor) =>
  hkdf(key, Buffer.concat([context, salt]), info('box-key', dealer, decryptor))

/** `count` bytes of AES-256-CTR under `seed` from `offset`, a multiple of 16 or not. */
export function keystream(seed, offset, count) {
  const block = Buffer.alloc(16)
  block.writeBigUInt64BE(BigInt(Math.floor(offset / 16)), 8)
  const lead = offset % 16
  return createCipheriv('aes-256-ctr', seed, block)
    .update(Buffer.alloc(lead + count))
    .subarray(lead)
}

export function sealBox(key, context, plain) {
  const cipher = createCipheriv('aes-256-gcm', key, Buffer.alloc(12)).setAAD(context)
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()])
}

/** The plaintext of a box. Refuses one that does not open. */
export function openBox(key, context, box) {
  require_(box.length >= 16, 'box-refused')
  const decipher = createDecipheriv('aes-256-gcm', key, Buffer.alloc(12)).setAAD(context).setAuthTag(box.subarray(-16))
  try {
    return Buffer.concat([decipher.update(box.subarray(0, -16)), decipher.final()])
  } catch {
    throw new Fault('box-refused')
  }
}

/** First 16 bytes of the hash: commitments to a member's own seed, a pair's seed, a share. */
export const commitSelf = (context, member, seed) => H('commit-self', context, member, seed).subarray(0, 16)
export const commitEdge = (context, u, v, seed) => H('commit-edge', context, u < v ? u : v, u < v ? v : u, seed).subarray(0, 16)
export const commitShare = (context, dealer, decryptor, index, share) => {
  const place = Buffer.alloc(4)
  place.writeUInt32LE(index)
  return H('commit-share', context, dealer, decryptor, place, share).subarray(0, 16)
}
