/** Ids of records, their keys and ranks, and the selection of rows (member: Ids; member: Selection). */
import { createHmac } from 'node:crypto'
import { ZERO, info, require_, u32 } from './encoding.mjs'
import { spareFeatures } from './vectors.mjs'

const LOCAL = 'local'
const ENDS =
  /^[\t-\r\x20\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|[\t-\r\x20\x85\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\0]+$/gu

function normalText(text) {
  for (let before = null; before !== text;) {
    before = text
    text = text
      .normalize('NFKC')
      .replace(/\p{Cf}/gu, '')
      .replace(ENDS, '')
  }
  const number = /^(-?)0*(0|[1-9][0-9]*)(\.0*)?$/.exec(text)
  return number ? (number[2] === '0' ? '0' : number[1] + number[2]) : text
}

/** The canonical bytes of an id: text, bytes or an integer (ID-1 to ID-4). */
export function canonicalId(id) {
  if (typeof id === 'bigint' || Number.isSafeInteger(id)) id = String(id)
  let text = id
  if (typeof id !== 'string') {
    require_(id instanceof Uint8Array, LOCAL)
    try {
      text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(id)
    } catch {
      let end = id.length
      while (end && id[end - 1] === 0) end--
      text = null
      id = Buffer.from(id.subarray(0, end))
    }
  }
  require_(text === null || text.isWellFormed(), LOCAL)
  const bytes = text === null ? id : Buffer.from(normalText(text))
  require_(bytes.length >= 1 && bytes.length <= 1024, LOCAL)
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

/** The rows of a study with their ids, ranks and class indices; the index is undefined for an unusable row (member: Ids). */
function* rankedRows(study, records, ids) {
  const { classes, dim } = study.q
  const index = new Map(classes.map((name, c) => [name, c]))
  const places = new Map()
  for (const [i, features] of records.features.entries()) {
    require_(features.length === dim, LOCAL)
    const id = records.ids ? canonicalId(records.ids[i]) : Buffer.alloc(0)
    if (id.toString().startsWith('canary-')) continue // CANARY-1
    const name = id.toString('hex')
    const place = places.get(name) ?? 0
    places.set(name, place + 1)
    const usable = features.every(Number.isFinite) && features.some((value) => value !== 0)
    const label = usable ? index.get(String(records.labels[i])) : undefined
    yield { id, name, rank: ids.rank(id, place), features: [...features], label }
  }
}

/**
 * Select rows for a study (SELECT-1 to SELECT-4). `records`: features, labels (class keys), ids (or null). `isFree(key)` asks the ledger.
 * Returns rows, labels (indices), keys and ranks, and whether the answer is yes.
 */
export function select(study, records, ids, isFree) {
  const { records: rule, members_min } = study.q
  const found = [...rankedRows(study, records, ids)].filter(
    ({ id, label }) => label !== undefined && !ids.isHeldOut(id) && isFree(ids.key(id)),
  )
  const taken = new Map()
  let rows = found
    .sort((a, b) => Buffer.compare(a.rank, b.rank))
    .filter(({ name }) => {
      const before = taken.get(name) ?? 0
      taken.set(name, before + 1)
      return !records.ids || before < rule.rows_per_id
    })
  if (!study.noisy) rows = rows.slice(0, rule.most)
  const keys = new Map(rows.map(({ id, name }) => [name, ids.key(id)]))
  const chosen = { ...columns(rows), keys: [...keys.values()] }
  const honest = study.leastSurvivors(members_min) - study.a
  chosen.yes = study.noisy || (rows.length >= rule.least && hasFeatures(study, chosen.features, chosen.labels, honest))
  return chosen
}

/** The rows of a reservation under another extractor (SELECT-8): those that are there, usable and of the same label. */
export function selectAgain(study, records, ids, base) {
  const rows = new Map([...rankedRows(study, records, ids)].map((row) => [row.rank.toString('hex'), row]))
  const there = base.ranks.map((rank) => rows.get(Buffer.from(rank).toString('hex')))
  return { ...columns(there.filter((row, i) => row?.label === base.labels[i])), keys: [] }
}

const columns = (rows) => ({
  features: rows.map((row) => row.features),
  labels: rows.map((row) => row.label),
  ranks: rows.map((row) => row.rank),
})

/** Whether rows have features enough for a sum beside `more` other numbers (SELECT-4, SELECT-8). */
export const hasFeatures = (study, features, labels, honest, more = 0) =>
  spareFeatures(study, features, labels) * honest >= 2 * (study.length * study.q.records.rows_per_id + more)
