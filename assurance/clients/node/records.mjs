/** Ids of records, their keys and ranks, and the selection of rows (member: Ids; member: Selection). */
import { createHmac } from 'node:crypto'
import { ZERO, info, require_, u32 } from './encoding.mjs'
import { spareFeatures } from './vectors.mjs'

const ENDS =
  /^[\t-\r\x20\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|[\t-\r\x20\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\0]+$/gu

function normalText(text) {
  for (let before = null; before !== text; ) {
    before = text
    text = text
      .normalize('NFKC')
      .replace(/\p{Cf}/gu, '')
      .replace(ENDS, '')
  }
  const number = /^(-?)0*(0|[1-9][0-9]*)(\.0*)?$/.exec(text)
  return number ? (number[2] === '0' ? '0' : number[1] + number[2]) : text
}

/** The canonical bytes of an id: text, bytes or an integer. */
export function canonicalId(id) {
  if (typeof id === 'bigint' || Number.isSafeInteger(id)) id = String(id)
  let text = id
  if (typeof id !== 'string') {
    require_(id instanceof Uint8Array, 'malformed')
    try {
      text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(id)
    } catch {
      let end = id.length
      while (end && id[end - 1] === 0) end--
      text = null
      id = Buffer.from(id.subarray(0, end))
    }
  }
  require_(text === null || text.isWellFormed(), 'malformed')
  const bytes = text === null ? id : Buffer.from(normalText(text))
  require_(bytes.length <= 1024, 'malformed')
  return bytes
}

/** What an installation's secret makes of ids. */
export class Ids {
  constructor(secret, federation, share) {
    this.secret = secret
    this.federation = federation
    this.share = share
  }
  #hmac(tag, ...fields) {
    return createHmac('sha256', this.secret)
      .update(info(tag, this.federation, ...fields))
      .digest()
  }
  key = (id) => (id.length ? this.#hmac('record', id) : ZERO)
  rank = (id, place) => this.#hmac('row', id, u32(place))
  /** The first 8 bytes below share · 2^64, compared exactly: a binary64 times 2^64 is an integer once scaled by 2^1022. */
  isHeldOut(id) {
    if (!id.length) return false
    const drawn = this.#hmac('held-out', id).readBigUInt64BE()
    const scaled = this.share * 2 ** 64
    return Number.isInteger(scaled) ? drawn < BigInt(scaled) : drawn <= BigInt(Math.floor(scaled))
  }
}

/**
 * Select rows for a study (SELECT-1 to SELECT-4). `records`: features, labels (class keys), ids (or null). `isFree(key)` asks the ledger.
 * Returns rows, labels (indices), keys and ranks, and whether the answer is yes.
 */
export function select(study, records, ids, isFree) {
  const { classes, records: rule, dim } = study.q
  const index = new Map(classes.map((name, c) => [name, c]))
  const places = new Map()
  const found = []
  records.features.forEach((features, i) => {
    const id = records.ids ? canonicalId(records.ids[i]) : Buffer.alloc(0)
    const name = id.toString('hex')
    const place = places.get(name) ?? 0
    places.set(name, place + 1)
    const label = index.get(String(records.labels[i]))
    require_(features.length === dim, 'malformed')
    const usable = label !== undefined && features.every(Number.isFinite) && features.some((value) => value !== 0)
    if (!usable || ids.isHeldOut(id)) return
    const key = ids.key(id)
    if (isFree(key)) found.push({ name, key, rank: ids.rank(id, place), features: [...features], label })
  })
  const byRank = (a, b) => Buffer.compare(a.rank, b.rank)
  const taken = new Map()
  let rows = [...found].sort(byRank).filter((row) => {
    const before = taken.get(row.name) ?? 0
    taken.set(row.name, before + 1)
    return !records.ids || before < rule.rows_per_id
  })
  if (!study.noisy) rows = rows.slice(0, rule.most)
  const chosen = {
    features: rows.map((row) => row.features),
    labels: rows.map((row) => row.label),
    keys: [...new Map(rows.map((row) => [row.key.toString('hex'), row.key])).values()],
    ranks: rows.map((row) => row.rank),
  }
  chosen.yes = study.noisy || (rows.length >= rule.least && hasFeatures(study, chosen))
  return chosen
}

const hasFeatures = (study, { features, labels }) =>
  spareFeatures(study, features, labels) * (study.leastSurvivors(study.q.members_min) - study.a) >=
  2 * study.length * study.q.records.rows_per_id
