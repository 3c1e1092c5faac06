/** Every message and struct of the protocol (wire: Encoding) as a table, and the codec that reads the table. */
import { Fault, FORBIDDEN_TEXT, H, ID, ascending, merkle, require_, u64 } from './encoding.mjs'
import { verify } from './keys.mjs'

const VERSION = 4

// A field is `name:type`. Types: u8 u32 u64 id, B32 (that many bytes), bytes<n, text<n, a struct's name,
// and `n*T` or `n^T` for a list of at most n, `^` if its items ascend without repeats.
const STRUCTS = {
  Entry: 'member:id key:B32',
  Terms: 'step:id count:B32 rows:B32 withheld:65536^u32 evicted:10000^id material:B32 latest_end:u64',
  Link: 'cohort:B32 sequence:u64 attempt:u8 question:B32 period:id step:id repeats:B32 context:B32 reason:id survivors:B32',
  Header: 'context:B32 member:id salt:B32 chunk_root:B32 commitment_root:B32 box_root:B32 signature:B64',
  Delivery: 'header:Header box:bytes<360016 box_path:64*B32 row:bytes<160000 row_path:64*B32',
  Survivor: 'member:id digest:B32',
  SurvivorSet: 'survivors:10000*Survivor',
  Shown: 'card:KeyCard mlkem_key:bytes<1184 path:64*B32',
  ShownCiphertext: 'member:id ciphertext:B1088 path:64*B32 signature:B64',
  Proof: 'header:Header commitments:bytes<160000 path:64*B32 index:u32 holders:1000^Holder',
  Holder: 'member:id share:B36 row:bytes<160000 path:64*B32',
  Disclosed:
    'header:Header commitments:bytes<160000 path:64*B32 chunk_digests:1048576*B32 chunks:1048576*bytes<33554432 seeds:10000*Seed',
  Seed: 'index:u32 seed:B32',
}

const MESSAGES = {
  Roster: [
    1,
    'number:u64 name:text<64 federation:B32 coordinator:B32 study_key:B32 members:10000^Entry decryptors:1000^id readers:10000^id revoked:1024^B32 signature:B64',
  ],
  KeyCard: [2, 'cohort:B32 member:id x25519_key:B32 mlkem_hash:B32 nonce:B32 expires:u64 serial:u64 signature:B64'],
  Manifest: [
    3,
    'cohort:B32 roster_hash:B32 counter:u64 study:B32 period:id repeats:B32 members:10000^id cards_root:B32 a_D:u32 n_min:u32 t:u32 k:u32 D_max:u32 decryptors:1000^id',
  ],
  Opening: [4, 'cohort:B32 sequence:u64 attempt:u8 links:65536*Link terms:Terms signature:B64'],
  Upload: [5, 'header:Header chunk_digests:1048576*B32 commitments:10000*B16 rows:1000*bytes<160000 boxes:1000*bytes<360016'],
  Deliveries: [6, 'context:B32 deliveries:10000^Delivery'],
  Receipt: [7, 'context:B32 member:id uploads:B32 dealers:10000^id complaints:10000^id signature:B64'],
  Freeze: [8, 'context:B32 headers:10000*Header earlier:2*SurvivorSet'],
  VoidRequest: [9, 'context:B32 reason:id'],
  Vote: [10, 'context:B32 member:id outcome:B32 signature:B64'],
  Refusal: [11, 'context:B32 member:id cause:id signature:B64'],
  Certificate: [12, 'context:B32 survivors:10000^Survivor reason:id votes:1000^Vote'],
  Reveal: [13, 'context:B32 member:id outcome:B32 evicted:10000^id runs:10000*bytes<360000 signature:B64'],
  Cards: [14, 'manifest:Manifest shown:10000^Shown'],
  Evictions: [15, 'context:B32 proofs:10000^Proof'],
  ErasureRequest: [16, 'context:B32'],
  Erased: [17, 'context:B32 member:id revealed:B32 signature:B64'],
  Erasure: [18, 'context:B32 reports:1000^Erased'],
  Lost: [19, 'context:B32 signature:B64'],
  Disclosure: [20, 'context:B32 entries:10000^Disclosed'],
  UploadSummary: [21, 'header:Header commitments:10000*B16 path:64*B32'],
  RevealSummary: [22, 'context:B32 member:id outcome:B32 evicted:10000^id runs_root:B32 signature:B64'],
  Chain: [23, 'federation:B32 links:65536*Link'],
  BadRun: [
    24,
    'reveal:RevealSummary header:Header place:u32 count:u32 run:bytes<360000 run_path:64*B32 row:bytes<160000 row_path:64*B32',
  ],
  Study: [25, 'federation:B32 content:bytes<1048576 signature:B64'],
  Enrolment: [26, 'card:KeyCard mlkem_key:B1184'],
  Pairing: [27, 'manifest:B32 member:id ciphertexts:10000*B1088 signature:B64'],
  Ciphertexts: [28, 'manifest:B32 shown:10000^ShownCiphertext'],
}

const parseFields = (text) =>
  text.split(' ').map((field) => [field.slice(0, field.indexOf(':')), field.slice(field.indexOf(':') + 1)])
const FIELDS = new Map(Object.entries(STRUCTS).map(([name, text]) => [name, parseFields(text)]))
const NAMES = new Map()
const KINDS = new Map()
for (const [name, [kind, text]] of Object.entries(MESSAGES)) {
  FIELDS.set(name, parseFields(text))
  NAMES.set(kind, name)
  KINDS.set(name, kind)
}

/** What an item of an ascending list ascends by. */
const orderOf = (item) =>
  Buffer.isBuffer(item) ? item.toString('hex') : (item.member ?? item.header?.member ?? item.card?.member ?? item)

class Reader {
  constructor(bytes) {
    this.bytes = bytes
    this.at = 0
  }
  take(count) {
    require_(this.at + count <= this.bytes.length, 'truncated')
    this.at += count
    return this.bytes.subarray(this.at - count, this.at)
  }
  sized(limit) {
    const length = this.take(4).readUInt32LE()
    require_(length <= limit, 'oversized')
    return this.take(length)
  }
  read(type) {
    if (type === 'u8') return this.take(1)[0]
    if (type === 'u32') return this.take(4).readUInt32LE()
    if (type === 'u64') return this.take(8).readBigUInt64LE()
    if (type === 'id') {
      const length = this.take(1)[0]
      require_(length >= 1 && length <= 64, 'malformed')
      const text = this.take(length).toString('latin1')
      require_(ID.test(text), 'malformed')
      return text
    }
    const list = /^(\d+)([*^])(.*)$/.exec(type)
    if (list) return this.readList(Number(list[1]), list[2] === '^', list[3])
    if (/^B\d+$/.test(type)) return Buffer.from(this.take(Number(type.slice(1))))
    if (type.startsWith('bytes<')) return Buffer.from(this.sized(Number(type.slice(6))))
    if (type.startsWith('text<')) return decodeText(this.sized(Number(type.slice(5))))
    return this.struct(type)
  }
  readList(limit, ascends, type) {
    const count = this.take(4).readUInt32LE()
    require_(count <= limit, 'oversized')
    const items = []
    for (let i = 0; i < count; i++) {
      items.push(this.read(type))
      if (ascends && i) require_(ascending(orderOf(items[i - 1]), orderOf(items[i])) < 0, 'malformed')
    }
    return items
  }
  struct(name) {
    const value = { type: name }
    for (const [field, type] of FIELDS.get(name)) value[field] = this.read(type)
    RULES[name]?.(value)
    return value
  }
}

function decodeText(bytes) {
  let text
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new Fault('malformed')
  }
  require_(!FORBIDDEN_TEXT.test(text), 'malformed')
  return text
}

const isZero = (bytes) => bytes.every((byte) => byte === 0)
const within = (ids, members, cause) => {
  const known = new Set(members)
  for (const id of ids) require_(known.has(id), cause, ...(cause === 'malformed' ? [] : [id]))
}

/** What a decoder checks beyond each field's own domain (DECODE-5, DECODE-7 to DECODE-10). */
const RULES = {
  Roster(roster) {
    const members = roster.members.map((entry) => entry.member)
    require_(!members.some((member) => ['admin', 'coordinator', 'operator'].includes(member)), 'malformed')
    const keys = roster.members.map((entry) => entry.key.toString('hex'))
    require_(new Set(keys).size === keys.length, 'duplicate', 'admin')
    within(roster.decryptors, members, 'unknown-member')
    within(roster.readers, members, 'unknown-member')
  },
  Manifest: (manifest) => within(manifest.decryptors, manifest.members, 'malformed'),
  Terms(terms) {
    const counts = !isZero(terms.rows) || terms.withheld.length || terms.evicted.length
    require_(!isZero(terms.count) || !counts, 'terms-refused')
  },
  Link(link) {
    require_((link.reason === 'none') === !isZero(link.survivors), 'malformed')
    require_(link.attempt < 8, 'wrong-sequence')
  },
  Opening: (opening) => require_(opening.attempt < 8, 'wrong-sequence'),
  SurvivorSet: (set) => require_(set.survivors.length > 0, 'malformed'),
  VoidRequest: (request) => require_(!['none', 'erased', 'lost'].includes(request.reason), 'malformed'),
  Certificate(certificate) {
    require_((certificate.reason === 'none') === certificate.survivors.length > 0, 'malformed')
    require_(!['erased', 'lost'].includes(certificate.reason), 'malformed')
  },
}

/** Read a message. Refuses what breaks DECODE-1 to DECODE-10. */
export function decode(bytes, ...expected) {
  const reader = new Reader(bytes)
  require_(reader.take(1)[0] === VERSION, 'unknown-version')
  const name = NAMES.get(reader.take(1)[0])
  require_(name && (!expected.length || expected.includes(name)), 'unknown-message')
  const message = reader.struct(name)
  require_(reader.at === bytes.length, 'left-over-bytes')
  message.bytes = Buffer.from(bytes)
  return message
}

function write(parts, type, value) {
  const number = (size, method) => {
    const out = Buffer.alloc(size)
    out[method](value)
    parts.push(out)
  }
  const count = (length) => write(parts, 'u32', length)
  if (type === 'u8') return number(1, 'writeUInt8')
  if (type === 'u32') return number(4, 'writeUInt32LE')
  if (type === 'u64') return number(8, 'writeBigUInt64LE')
  if (type === 'id') return parts.push(Buffer.from([value.length]), Buffer.from(value))
  const list = /^\d+[*^](.*)$/.exec(type)
  if (list) {
    count(value.length)
    return value.forEach((item) => write(parts, list[1], item))
  }
  if (/^B\d+$/.test(type)) return parts.push(value)
  if (/^(bytes|text)</.test(type)) {
    const bytes = Buffer.from(value)
    count(bytes.length)
    return parts.push(bytes)
  }
  for (const [field, kind] of FIELDS.get(type)) write(parts, kind, value[field])
}

/** The bytes of a struct, or of a message's fields, without a header. */
export function fieldsOf(name, value) {
  const parts = []
  write(parts, name, value)
  return Buffer.concat(parts)
}

export const encode = (name, value) => Buffer.concat([Buffer.from([VERSION, KINDS.get(name)]), fieldsOf(name, value)])

const TAGS = {
  Roster: 'roster',
  KeyCard: 'card',
  Opening: 'opening',
  Receipt: 'receipt',
  Vote: 'vote',
  Refusal: 'refusal',
  Erased: 'erased',
  Lost: 'lost',
  Study: 'study',
}

/** `dg_u`, the digest of an announcement. */
export const uploadDigest = (header) =>
  H('upload-digest', header.context, header.member, header.salt, header.chunk_root, header.commitment_root, header.box_root)

/** What the signature of a message or header is over. */
export function signedDigest(name, value) {
  if (name === 'Digest') return value.digest
  if (name === 'Header') return H('upload', value.context, value.member, uploadDigest(value))
  if (name === 'Pairing') return H('pairing', value.manifest, value.member, merkle(value.ciphertexts).root)
  if (name === 'Reveal' || name === 'RevealSummary') {
    const root = value.runs_root ?? merkle(value.runs).root
    return H('reveal', value.context, value.member, value.outcome, merkle(value.evicted.map((id) => Buffer.from(id))).root, root)
  }
  return H(TAGS[name], encode(name, { ...value, signature: Buffer.alloc(0) }))
}

export const signatureHolds = (name, value, key) => verify(key, signedDigest(name, value), value.signature)

export const idsOf = (items) => items.map(({ member }) => member)

/** Hashes by name: each is over a whole message's bytes. */
export const rosterHash = (roster) => H('roster', encode('Roster', roster))
export const studyHash = (study) => signedDigest('Study', study)
export const manifestHash = (manifest) => H('manifest', encode('Manifest', manifest))
export const cardBytes = (card) => encode('KeyCard', card)
export const beaconOf = (manifest) => H('cards', manifest.cohort, manifest.cards_root)
export const cohortOf = (fields) =>
  H('cohort', fields.roster_hash, u64(fields.counter), fields.study, fields.period, fields.repeats)
export const foldLink = (chain, link) => H('link', chain, fieldsOf('Link', link))
export const foldChain = (links) => links.reduce(foldLink, Buffer.alloc(32))
export const survivorsHash = (context, survivors) =>
  H('survivors', context, ...survivors.map((survivor) => fieldsOf('Survivor', survivor)))
export const voidHash = (context, reason) => H('void', context, reason)
export const termsHash = (terms) => H('terms', fieldsOf('Terms', terms))

const SUITE = 'x25519_mlkem768-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31'

/** `ctx` (wire: Openings), and the hashes that it is made of. */
export function contextOf(federation, manifest, opening) {
  const chain = foldChain(opening.links)
  const hash = manifestHash(manifest)
  const terms = termsHash(opening.terms)
  const context = H(
    'ctx',
    SUITE,
    federation,
    manifest.roster_hash,
    manifest.cohort,
    hash,
    u64(opening.sequence),
    Buffer.from([opening.attempt]),
    chain,
    terms,
  )
  return { context, chain, manifest_hash: hash, terms_hash: terms }
}
