/** A study's canary pack, and a member's canaries against it (member: Canaries). */
import { crc32 } from 'node:zlib'
import { COORDINATOR, Fault, hex, require_, sha256 } from './encoding.mjs'
import { canonicalId } from './records.mjs'
import { unit } from './vectors.mjs'

const PACK_BYTES_MAX = 2 ** 26
const CANARIES_MAX = 10_000
const FIELDS = ['columns', 'dim', 'format', 'ids', 'inputs', 'labels', 'slips']
const END = Buffer.from('PK\x05\x06')

/** The entries of a ZIP archive by name; null unless all are there, whole and uncompressed. */
function readArchive(bytes) {
  const end = bytes.lastIndexOf(END)
  if (end < 0 || bytes.length > PACK_BYTES_MAX) return null
  const entries = new Map()
  let [at, room] = [bytes.readUInt32LE(end + 16), bytes.length]
  for (let left = bytes.readUInt16LE(end + 10); left; left--) {
    const [method, crc] = [bytes.readUInt16LE(at + 10), bytes.readUInt32LE(at + 16)]
    const [packed, size] = [bytes.readUInt32LE(at + 20), bytes.readUInt32LE(at + 24)]
    const [name, extra, comment] = [28, 30, 32].map((place) => bytes.readUInt16LE(at + place))
    const local = bytes.readUInt32LE(at + 42)
    const start = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28)
    const content = bytes.subarray(start, start + size)
    room -= size
    if (method !== 0 || packed !== size || room < 0 || content.length !== size || crc32(content) !== crc) return null
    entries.set(bytes.toString('utf8', at + 46, at + 46 + name), content)
    at += 46 + name + extra + comment
  }
  return entries
}

const distinct = (names) => Array.isArray(names) && new Set(names).size === names.length

/** The canaries of a study's pack by id: features in the order of its columns, and class index (CANARY-2, CANARY-3). */
export function readPack(study, bytes) {
  require_(hex(sha256(bytes)) === study.content.rehearsal.pack, 'malformed', COORDINATOR)
  try {
    return canariesOf(study.q, readArchive(bytes))
  } catch {
    throw new Fault('study-refused', 'admin')
  }
}

function canariesOf({ dim, classes, columns: wanted }, entries) {
  const need = (holds) => require_(holds, 'study-refused')
  const header = JSON.parse(entries.get('canaries.json'))
  need(Object.keys(header).sort().join() === FIELDS.join() && header.format === 'veilsum-canaries/1' && header.dim === dim)
  const { ids, labels, columns, slips, inputs } = header
  need([ids, columns, slips, inputs].every(distinct) && ids.length >= 1 && ids.length <= CANARIES_MAX)
  need(ids.every((id) => /^canary-[0-9A-Za-z._-]{1,100}$/.test(id)))
  need(labels.length === ids.length && labels.every((label) => classes.includes(label)))
  need(!columns.length || columns.length === dim)
  const byName = columns.length && wanted.length
  need(!byName || wanted.every((name) => columns.includes(name)))
  const tables = ['features', ...slips.map((name) => `slips/${name}`)]
  const names = ['canaries.json', ...tables, ...inputs.map((name) => `inputs/${name}`)]
  need([...entries.keys()].sort().join() === names.sort().join())
  const rowsOf = (table) => {
    need(table.length === 4 * dim * ids.length)
    const rows = ids.map((_, i) => Array.from({ length: dim }, (_, j) => table.readFloatLE(4 * (i * dim + j))))
    need(rows.every(isUsable))
    return rows
  }
  const [features] = tables.map((name) => rowsOf(entries.get(name)))
  const ordered = (row) => (byName ? wanted.map((name) => row[columns.indexOf(name)]) : row)
  return new Map(ids.map((id, i) => [id, { features: ordered(features[i]), label: classes.indexOf(labels[i]) }]))
}

const isUsable = (row) => row.every(Number.isFinite) && row.some((value) => value !== 0)

/** Refuse canaries that differ from the pack's (CANARY-4, CANARY-5). `records`: features, labels (class keys), ids (or null). */
export function checkCanaries(study, pack, records, member) {
  const need = (holds) => require_(holds, 'canaries-differ', member)
  const ids = (records.ids ?? []).map((id) => canonicalId(id).toString())
  const places = ids.flatMap((id, i) => (id.startsWith('canary-') ? [i] : []))
  need(
    places
      .map((i) => ids[i])
      .sort()
      .join() === [...pack.keys()].sort().join(),
  )
  for (const i of places) {
    const { features, label } = pack.get(ids[i])
    need(isUsable(records.features[i]))
    const [own, reference] = [unit([...records.features[i]]), unit(features)]
    need(Math.hypot(...own.map((value, j) => value - reference[j])) <= study.content.rehearsal.tolerance)
    need(study.q.classes.indexOf(String(records.labels[i])) === label)
  }
}
