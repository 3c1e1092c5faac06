/** Bytes, hashes, Merkle trees and canonical JSON (wire: Hashes; wire: Encoding). */
import { createHash } from 'node:crypto'

/** A refusal: its cause, and the parties that it names. */
export class Fault extends Error {
  constructor(cause, ...parties) {
    super(parties.length ? `${cause} (${parties.join(', ')})` : cause)
    this.cause = cause
    this.parties = parties
  }
}

/** How refusals name the coordinator. */
export const COORDINATOR = 'coordinator'

/** Refuse with `cause` unless `holds`. */
export function require_(holds, cause, ...parties) {
  if (!holds) throw new Fault(cause, ...parties)
}

export const ZERO = Buffer.alloc(32)
export const hex = (bytes) => Buffer.from(bytes).toString('hex')
export const unhex = (text) => Buffer.from(text, 'hex')
export const same = (a, b) => Buffer.compare(a, b) === 0
export const ascending = (a, b) => (a < b ? -1 : a > b ? 1 : 0)

export function u32(value) {
  const out = Buffer.alloc(4)
  out.writeUInt32LE(value)
  return out
}

export function u64(value) {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(BigInt(value))
  return out
}

/** The preimage of a tagged hash: the tag, then each field behind its length. Text stands as its bytes. */
export function info(tag, ...fields) {
  const parts = [Buffer.from(`veilsum/4/${tag}\0`)]
  for (const field of fields) {
    const bytes = typeof field === 'string' ? Buffer.from(field) : field
    parts.push(u64(bytes.length), bytes)
  }
  return Buffer.concat(parts)
}

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest()
export const H = (tag, ...fields) => sha256(info(tag, ...fields))

/** Root and paths of the Merkle tree over `leaves`; of an empty list, of one leaf of no bytes. */
export function merkle(leaves) {
  const count = leaves.length || 1
  let level = (leaves.length ? leaves : [Buffer.alloc(0)]).map((leaf) => H('merkle-leaf', leaf))
  const levels = []
  while (level.length > 1) {
    levels.push(level)
    const next = []
    for (let i = 0; i + 1 < level.length; i += 2) next.push(H('merkle-node', level[i], level[i + 1]))
    if (level.length % 2) next.push(level.at(-1))
    level = next
  }
  const path = (index) => levels.map((nodes, height) => nodes[(index >> height) ^ 1]).filter(Boolean)
  return { root: H('merkle-root', u64(count), level[0]), path }
}

/** The root that `path` leads to from `leaf` at `index` of `count`; null if no path of this length does. */
export function rootOfPath(leaf, index, count, path) {
  if (index < 0 || index >= count) return null
  let node = H('merkle-leaf', leaf)
  let used = 0
  for (let width = count; width > 1; width = Math.ceil(width / 2), index >>= 1) {
    if ((index ^ 1) >= width) continue
    if (used === path.length) return null
    const sibling = path[used++]
    node = index % 2 ? H('merkle-node', sibling, node) : H('merkle-node', node, sibling)
  }
  return used === path.length ? H('merkle-root', u64(count), node) : null
}

export function pathHolds(root, leaf, index, count, path) {
  const found = rootOfPath(leaf, index, count, path)
  return found !== null && same(root, found)
}

/** Canonical JSON (RFC 8785): JSON.stringify writes numbers and strings as the RFC says; keys sort by UTF-16 units. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  const fields = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`)
  return `{${fields.join(',')}}`
}

// What breaks lines or turns the text's direction, besides control characters (wire: Encoding).
export const FORBIDDEN_TEXT = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u
export const ID = /^[a-z0-9-]{1,64}$/
