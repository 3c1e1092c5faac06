/** The functions of assurance/vectors/README.md over the client. Each compares with the expected output itself. */
import assert from 'node:assert/strict'
import { H, canonical, hex, merkle, pathHolds, require_, unhex } from '../encoding.mjs'
import { checkCanaries, readPack } from '../canaries.mjs'
import * as keys from '../keys.mjs'
import * as messages from '../messages.mjs'
import * as checks from '../checks.mjs'
import { linkOf, linkWith } from '../history.mjs'
import { readMaterial } from '../material.mjs'
import { plainNoisyVector, requireNoiseFits, variances } from '../noise.mjs'
import { cover } from '../disputes.mjs'
import { checkHead, checkSum } from '../heads.mjs'
import { Ids, canonicalId, select } from '../records.mjs'
import * as ring from '../ring.mjs'
import * as sizes from '../sizes.mjs'
import { Study } from '../study.mjs'
import * as vectors from '../vectors.mjs'
import { audit } from '../transcript.mjs'
import { playInvitations, playLedger } from './ledger.mjs'
import { roundOf, showRecord } from './stage.mjs'

const equal = (actual, expected) => assert.deepEqual(actual, expected)
const parse = (content) => Study.parse(Buffer.from(content))
const names = (members) =>
  typeof members === 'number' ? Array.from({ length: members }, (_, i) => `m-${String(i).padStart(5, '0')}`) : members
const integers = (list) => list.map(BigInt)
const near = (actual, expected, digits) => {
  assert.equal(actual.length, expected.length)
  actual.forEach((value, i) =>
    assert.ok(Math.abs(value - expected[i]) <= 10 ** -digits * Math.max(1, Math.abs(expected[i])), `${value} ${expected[i]}`),
  )
}

/** What a case shows of an attempt. */
function evidence(input) {
  const roster = messages.decode(unhex(input.roster))
  const facts = new checks.Cohort(roster, checks.checkStudy(unhex(input.study), roster), messages.decode(unhex(input.manifest)))
  const opening = messages.decode(unhex(input.opening))
  const { context } = messages.contextOf(facts.federation, facts.manifest, opening)
  return { facts, opening, context, certificate: input.certificate && messages.decode(unhex(input.certificate)) }
}

export const FUNCTIONS = {
  agree: (i, o) => equal(hex(keys.agree(unhex(i.private), unhex(i.public))), o?.shared),
  'root-key': (i, o) => {
    const pair = { from: i.from, to: i.to, hash: unhex(i.hash), ciphertext: unhex(i.ciphertext), secret: unhex(i.mlkem) }
    equal(hex(keys.rootKey(i.purpose, unhex(i.x25519), pair, unhex(i.cohort), unhex(i.manifest_hash))), o.key)
  },
  ratchet: (i, o) => equal(hex(keys.ratchet(unhex(i.key), unhex(i.cohort), i.sequence)), o.key),
  'mask-seed': (i, o) => equal(hex(keys.maskSeed(unhex(i.key), unhex(i.context), i.low, i.high)), o.seed),
  'box-key': (i, o) => equal(hex(keys.boxKey(unhex(i.key), unhex(i.context), unhex(i.salt), i.dealer, i.decryptor)), o.key),
  commitment: (i, o) => {
    const [context, secret] = [unhex(i.context), unhex(i.secret)]
    const made = {
      'commit-self': () => keys.commitSelf(context, i.members[0], secret),
      'commit-edge': () => keys.commitEdge(context, i.members[0], i.members[1], secret),
      'commit-share': () => keys.commitShare(context, i.members[0], i.members[1], i.index, secret),
    }[i.purpose]()
    equal(hex(made), o.commitment)
  },
  'mlkem-key': (i, o) => equal(hex(keys.mlkemPublic(unhex(i.seed))), o.key),
  'mlkem-check': (i, o) => {
    require_(keys.mlkemKeyIsValid(unhex(i.key)), 'mlkem-key-invalid')
    equal(hex(keys.mlkemHash(unhex(i.key))), o.hash)
  },
  'mlkem-decapsulate': (i, o) => equal(hex(keys.decapsulate(unhex(i.seed), unhex(i.ciphertext))), o?.shared),
  'mlkem-encapsulate': (i, o) => {
    const made = keys.encapsulate(unhex(i.key), unhex(i.message))
    equal([hex(made.ciphertext), hex(made.secret)], [o.ciphertext, o.shared])
  },
  hash: (i, o) => equal(hex(H(i.tag, ...i.fields.map(unhex))), o.hash),
  signed: (i, o) => {
    equal(hex(keys.publicOf('ed25519', unhex(i.seed))), o.public)
    equal(hex(keys.sign(unhex(i.seed), unhex(i.digest))), o.signature)
    assert.ok(keys.verify(unhex(o.public), unhex(i.digest), unhex(o.signature)))
  },
  verify: (i) => require_(keys.verify(unhex(i.public), unhex(i.digest), unhex(i.signature)), 'bad-signature'),
  merkle: (i, o) => {
    const tree = merkle(i.leaves.map(unhex))
    equal(hex(tree.root), o.root)
    equal(
      i.leaves.map((_, index) => tree.path(index).map(hex)),
      o.paths,
    )
  },
  'merkle-path': (i, o) => equal(pathHolds(unhex(i.root), unhex(i.leaf), i.index, i.count, i.path.map(unhex)), o.holds),
  keystream: (i, o) => equal([...ring.mask(unhex(i.seed), i.bits, i.offset, i.count)], integers(o.words)),
  masked: (i, o) => equal(hex(ring.masked(i.elements, i.bits, i.offset, i.added.map(unhex), i.subtracted.map(unhex))), o.packed),
  pack: (i, o) => equal(hex(ring.pack(integers(i.elements), i.bits)), o.packed),
  unpack: (i, o) => {
    const words = [...ring.unpack(unhex(i.packed), i.bits, i.count)]
    equal(words, integers(o.words))
    equal(
      words.map((word) => ring.centred(word, i.bits)),
      integers(o.centred),
    )
  },
  deal: (i, o) =>
    equal(
      ring.deal(i.secrets.map(unhex), i.holders, i.coefficients).map((row) => row.map(hex)),
      o.shares,
    ),
  recover: (i, o) => {
    const secret = ring.recover(i.positions, i.shares.map(unhex))
    require_(secret, 'share-invalid')
    equal(hex(secret), o.secret)
  },
  box: (i, o) => equal(hex(keys.sealBox(unhex(i.key), unhex(i.context), unhex(i.shares))), o.box),
  'open-box': (i, o) => equal(hex(keys.openBox(unhex(i.key), unhex(i.context), unhex(i.box))), o?.shares),
  ring: (i, o) => {
    const ids = names(i.members)
    equal(
      sizes.ringOrder(unhex(i.beacon), ids).map((id) => ids.indexOf(id)),
      o.order,
    )
    equal(Object.fromEntries(i.of.map((id) => [id, sizes.neighbours(id, ids, unhex(i.beacon), i.degree)])), o.neighbours)
    equal(sizes.drawCommittee(unhex(i.beacon), ids, i.committee), o.committee)
  },
  window: (i, o) =>
    equal(sizes.windowExceeded(names(i.members), unhex(i.beacon), i.degree, i.dropped_max, i.lost), o.exceeded_by),
  pairs: (i, o) => {
    const beacon = H('cards', unhex(i.cohort), unhex(i.cards_root))
    const ids = names(i.members)
    const decryptors = i.decryptors.length ? i.decryptors : ids
    const made = i.of.map((id) => [id, sizes.pairs(id, ids, beacon, i.degree, decryptors)])
    equal(Object.fromEntries(made.map(([id, pair]) => [id, pair.to])), o.to)
    equal(Object.fromEntries(made.map(([id, pair]) => [id, pair.from])), o.from)
  },
  pairing: (i, o) => {
    const pairing = messages.decode(unhex(i.pairing), 'Pairing')
    const tree = merkle(pairing.ciphertexts)
    equal(hex(tree.root), o.root)
    equal(hex(messages.signedDigest('Pairing', pairing)), o.digest)
    equal(
      pairing.ciphertexts.map((_, at) => tree.path(at).map(hex)),
      o.paths,
    )
    assert.ok(messages.signatureHolds('Pairing', pairing, unhex(i.public)))
  },
  sizes: (i, o) => {
    const came = Math.min(i.nominated, i.members)
    equal(sizes.sizes(i.roster, i.members, i.nominated, came, i, i.repeats), o)
  },
  cover: (i, o) => equal(cover(unhex(i.context), i.disputes, i.a), o.dropped),
  study: (i, o) => {
    const study = parse(i.content)
    equal(
      {
        question: hex(study.question),
        approval: hex(study.approval),
        scale: study.scale,
        width: study.width,
        steps: study.steps,
      },
      o,
    )
  },
  'signed-study': (i, o) => {
    const fields = { federation: unhex(i.federation), content: Buffer.from(i.content), signature: Buffer.alloc(0) }
    fields.signature = keys.sign(unhex(i.seed), messages.signedDigest('Study', fields))
    equal({ study: hex(messages.encode('Study', fields)), hash: hex(messages.studyHash(fields)) }, o)
  },
  cohort: (i, o) => {
    const fields = {
      roster_hash: unhex(i.roster_hash),
      counter: BigInt(i.counter),
      study: unhex(i.study),
      period: i.period,
      repeats: unhex(i.repeats),
    }
    equal(hex(messages.cohortOf(fields)), o.cohort)
  },
  vector: (i, o) => equal(vectors.exactVector(parse(i.content), i.rows, i.labels, i.withheld), o.elements),
  'noisy-vector': (i, o) => {
    const study = parse(i.content)
    equal(plainNoisyVector(study, i.step, i.rows, i.labels, i.material), o.elements)
    const all = [...new Set(variances(study, i.step, i.n_min))].sort((a, b) => a - b)
    assert.equal(all.length, o.variances.length)
    all.forEach((value, at) => assert.ok(Math.abs(value - o.variances[at]) <= 5e-12 * value, `${value} ${o.variances[at]}`))
  },
  material: (i, o) => equal(readMaterial(parse(i.content), i.step, unhex(i.file)), o.material),
  'noise-fits': (i) => requireNoiseFits(parse(i.content), i.members, i.n_min),
  missed: (i) => {
    const round = roundOf(i.round)
    const one = i.has === 'keys' ? round.replay(i.member, 0, 0) : round.member(i.member)
    const [link] = messages.decode(unhex(i.chain), 'Chain').links
    const [cards, opening, closing] = [i.cards, i.opening, i.closing].map((index) =>
      index === null ? null : round.messages[index],
    )
    one.checkForgotten(link, { cards, opening, closing })
  },
  'record-id': (i, o) => {
    const ids = new Ids(unhex(i.secret), unhex(i.federation), i.held_out)
    const id = i.id === null ? Buffer.alloc(0) : canonicalId(unhex(i.id))
    equal({ id: hex(id), key: hex(ids.key(id)), held_out: ids.isHeldOut(id) }, o)
  },
  selection: (i, o) => {
    const study = parse(i.content)
    const ids = new Ids(unhex(i.secret), unhex(i.federation), i.held_out)
    const records = { features: i.rows, labels: i.labels.map((label) => study.q.classes[label]), ids: i.ids }
    const chosen = select(study, records, ids, (key) => !i.taken.includes(hex(key)))
    const ranks = new Set(chosen.ranks.map(hex))
    const places = new Map()
    const isChosen = (row) => {
      const id = i.ids ? canonicalId(i.ids[row]) : Buffer.alloc(0)
      places.set(hex(id), (places.get(hex(id)) ?? -1) + 1)
      return ranks.has(hex(ids.rank(id, places.get(hex(id)))))
    }
    const selected = i.rows.map((_, row) => row).filter(isChosen)
    equal({ selected, keys: chosen.keys.map(hex).sort(), yes: chosen.yes }, o)
  },
  canaries: (i) => {
    const study = parse(i.content)
    const records = { features: i.rows, labels: i.labels.map((label) => study.q.classes[label]), ids: i.ids }
    checkCanaries(study, readPack(study, unhex(i.pack)), records, 'm-0')
  },
  ledger: (i, o) => equal(playLedger(i), o),
  invitations: (i, o) => equal(playInvitations(i), o),
  count: (i, o) => equal(vectors.countVector(parse(i.content), i.rows, i.labels), o.elements),
  rows: (i, o) => equal(vectors.rowsVector(parse(i.content), i.rows, i.labels, i.withheld), o.elements),
  rare: (i, o) => {
    const study = parse(i.content)
    require_(study.goesOn(i.holders, i.reached ?? null), 'count-mismatch')
    equal(study.withheldBy(i.holders), o.withheld)
  },
  directions: (i, o) => {
    const study = parse(i.content)
    near(
      vectors
        .directions(
          study,
          study.q.statistics.find((s) => s.kind === 'random-features'),
        )
        .flat(),
      o.directions.flat(),
      13,
    )
  },
  ciphertexts: (i, o) => {
    const facts = new checks.Cohort(messages.decode(unhex(i.roster)), null, messages.decode(unhex(i.manifest)))
    equal([...checks.checkCiphertexts(messages.decode(unhex(i.ciphertexts)), facts, i.member).keys()], o.from)
  },
  certificate: (i, o) => {
    const { facts, opening, context, certificate } = evidence(i)
    const outcome = checks.checkCertificate(certificate, context, facts, opening.terms.step)
    equal(
      {
        outcome: hex(outcome),
        link: hex(messages.fieldsOf('Link', linkWith({ link: linkOf(facts, opening, context) }, certificate))),
      },
      o,
    )
  },
  due: (i, o) => {
    const { facts } = evidence(i)
    equal(Object.fromEntries(i.staying.map((dealer) => [dealer, facts.due(dealer, i.staying)])), o.due)
  },
  eviction: (i, o) => {
    const { facts, certificate } = evidence(i)
    equal(checks.checkEvictions(messages.decode(unhex(i.evictions)), certificate, facts, []), o.evicted)
  },
  outcomes: (i, o) => {
    const context = unhex(i.context)
    const survivors = i.survivors.map((s) => ({ member: s.member, digest: unhex(s.digest) }))
    const link = {
      cohort: unhex(i.cohort),
      sequence: BigInt(i.sequence),
      attempt: i.attempt,
      question: unhex(i.question),
      period: i.period,
      step: i.step,
      repeats: unhex(i.repeats),
      context,
      reason: i.reason,
      survivors: survivors.length ? messages.survivorsHash(context, survivors) : Buffer.alloc(32),
    }
    messages.decode(messages.encode('Chain', { federation: context, links: [link] }))
    equal(
      {
        survivors_hash: survivors.length ? hex(messages.survivorsHash(context, survivors)) : null,
        void: hex(messages.voidHash(context, i.reason)),
        link: hex(messages.fieldsOf('Link', link)),
        chain: hex(messages.foldLink(unhex(i.chain), link)),
      },
      o,
    )
  },
  context: (i, o) => {
    const roster = messages.decode(unhex(i.roster), 'Roster')
    const study = messages.decode(unhex(i.study), 'Study')
    const manifest = messages.decode(unhex(i.manifest), 'Manifest')
    const opening = messages.decode(unhex(i.opening), 'Opening')
    const made = {
      roster_hash: messages.rosterHash(roster),
      study: messages.studyHash(study),
      cohort: messages.cohortOf(manifest),
      beacon: messages.beaconOf(manifest),
      ...messages.contextOf(roster.federation, manifest, opening),
    }
    equal(Object.fromEntries(Object.entries(made).map(([name, bytes]) => [name, hex(bytes)])), o)
  },
  transcript: (i, o) => {
    const whole = roundOf(i.round).data.attempts[i.attempt].transcript.entries
    const entries = i.entries.map((entry) => unhex(typeof entry === 'number' ? whole[entry] : entry))
    const { findings, refusals, signed, evicted, counted } = audit(entries, unhex(i.signature), unhex(i.federation))
    equal({ findings, refusals, signed, evicted, counted }, o)
  },
  result: (i, o) => {
    showRecord(i.round, i.attempt, i.record)
    assert.ok(o.holds)
  },
  head: (i) => checkHead(parse(i.content), i, i.head && unhex(i.head)),
  solution: (i) => checkSum(parse(i.content), i.sum, i.members, i, unhex(i.head)),
  record: (i, o) => {
    equal(canonical(i.record), o.body)
    equal(hex(H('result', Buffer.from(canonical(i.record)))), o.digest)
  },
}
