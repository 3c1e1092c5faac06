/** The checks that need no secret: a member makes them in a round, an auditor from a transcript. */
import { COORDINATOR, Fault, H, ZERO, hex, merkle, pathHolds, require_, rootOfPath, same, sha256 } from './encoding.mjs'
import { agree, canonicalX25519, commitEdge, commitSelf, commitShare, mlkemHash, mlkemKeyIsValid } from './keys.mjs'
import * as m from './messages.mjs'
import { requireNoiseFits } from './noise.mjs'
import { CHUNK_ELEMENTS, centred, mask, recover, unpack } from './ring.mjs'
import { drawCommittee, neighbours, pairs, sizes, windowExceeded } from './sizes.mjs'
import { Study } from './study.mjs'

export const MONTH_S = 30 * 86400
/** Act, and refuse for `cause` whatever it refuses. */
export const asAny = (check, cause, ...parties) => {
  try {
    return check()
  } catch (error) {
    throw error instanceof Fault ? new Fault(cause, ...parties) : error
  }
}

/** A roster under the pinned key (ROSTER-1, ROSTER-2). */
export function checkRoster(bytes, federation) {
  const roster = m.decode(bytes, 'Roster')
  require_(same(roster.federation, federation), 'wrong-federation')
  require_(m.signatureHolds('Roster', roster, federation), 'bad-signature', 'admin')
  return roster
}

/** A study under a roster, apart from what a member's clock, ledger and owner say (STUDY-1 to STUDY-4). */
export function checkStudy(bytes, roster) {
  const message = m.decode(bytes, 'Study')
  require_(same(message.federation, roster.federation), 'wrong-federation', 'admin')
  require_(m.signatureHolds('Study', message, roster.study_key), 'bad-signature', 'admin')
  const study = Study.parse(message.content)
  study.hash = m.studyHash(message)
  require_(!roster.revoked.some((hash) => same(hash, study.hash)), 'study-refused', 'admin')
  return study
}

/** What follows from roster, study and manifest, and is asked for in every check of an attempt. */
export class Cohort {
  constructor(roster, study, manifest, shown = []) {
    Object.assign(this, { roster, study, manifest })
    this.cards = new Map(shown.map(({ card }) => [card.member, card]))
    this.federation = roster.federation
    this.hash = m.manifestHash(manifest)
    this.beacon = m.beaconOf(manifest)
    this.members = manifest.members
    this.decryptors = manifest.decryptors
    this.keys = new Map(roster.members.map(({ member, key }) => [member, key]))
    this.q = this.decryptors.length + manifest.a_D - manifest.t + 1
    this.repeats = !same(manifest.repeats, ZERO)
    this.near = new Map()
  }
  isMember = (member) => this.members.includes(member)
  position = (member) => this.decryptors.indexOf(member)
  pairs = (member) => pairs(member, this.members, this.beacon, this.manifest.k, this.decryptors)
  neighbours(member) {
    if (!this.near.has(member)) this.near.set(member, neighbours(member, this.members, this.beacon, this.manifest.k))
    return this.near.get(member)
  }
  windowExceeded(survivors) {
    const { k, D_max } = this.manifest
    const lost = this.members.filter((member) => !survivors.includes(member))
    return windowExceeded(this.members, this.beacon, k, D_max, lost)
  }
  leastOf = (step) => this.study.leastOf(step, this.manifest.n_min)
  signed = (name, value, member) => m.signatureHolds(name, value, this.keys.get(member))
  /** Indices of `dealer`'s secrets that are revealed when `staying` stay (wire: Reveals). */
  due(dealer, staying) {
    return [0, ...this.neighbours(dealer).flatMap((other, i) => (staying.includes(other) ? [] : [i + 1]))]
  }
  commitment(context, dealer, index, secret) {
    return index ? commitEdge(context, dealer, this.neighbours(dealer)[index - 1], secret) : commitSelf(context, dealer, secret)
  }
  /** Whether a secret is the one that its dealer committed to. */
  isCommitted = (context, dealer, index, secret, commitments) =>
    same(this.commitment(context, dealer, index, secret), commitments.subarray(16 * index, 16 * index + 16))
  /** Whether a decryptor's share is. */
  isShareCommitted = (context, dealer, decryptor, index, share, row) =>
    same(commitShare(context, dealer, decryptor, index, share), row.subarray(16 * index, 16 * index + 16))
  /** Whether a decryptor's row leads to a dealer's signed commitments. */
  rowLeads = (header, decryptor, row, path) =>
    row.length === 16 * (1 + this.manifest.k) &&
    this.position(decryptor) >= 0 &&
    pathHolds(header.commitment_root, row, 1 + this.position(decryptor), 1 + this.decryptors.length, path)
  commitmentsLead = (header, commitments, path) =>
    commitments.length === 16 * (1 + this.manifest.k) &&
    pathHolds(header.commitment_root, commitments, 0, 1 + this.decryptors.length, path)
}

/**
 * Cards (CARDS-1 to CARDS-17). `own` has the member and the bytes of its card; without it the caller is an auditor, who
 * is shown all cards and no ML-KEM key. `repeated` are the survivors of the attempt that the cohort repeats.
 */
export function checkCards(cards, roster, study, own = null, repeated = null) {
  const { manifest, shown } = cards
  const blamed = own ? [] : [COORDINATOR]
  const need = (holds, cause, ...parties) => require_(holds, cause, ...(own ? parties : [COORDINATOR]))
  const cohort = m.cohortOf(manifest)
  need(
    same(cohort, manifest.cohort) && same(manifest.roster_hash, m.rosterHash(roster)) && same(manifest.study, study.hash),
    'wrong-cohort',
  )
  if (own) need(same(own.card.cohort, cohort), 'wrong-cohort')
  const facts = new Cohort(roster, study, manifest, shown)
  study.requirePeriod(manifest.period, facts.repeats)
  for (const member of facts.members) need(facts.keys.has(member), 'unknown-member', member)
  const N = roster.members.length
  if (!facts.repeats) need(N <= study.q.members_max, 'weak-parameters', 'admin')
  else {
    need(!study.noisy, 'terms-refused', COORDINATOR)
    if (own) need(repeated && repeated.join() === facts.members.join(), 'repeat-mismatch', COORDINATOR)
  }
  checkNumbers(facts, need)
  if (study.noisy) requireNoiseFits(study, facts.members.length, manifest.n_min)
  checkShown(facts, shown, need)
  const seen = new Set()
  for (const { card } of shown)
    for (const key of [canonicalX25519(card.x25519_key), `m${hex(card.mlkem_hash)}`])
      need(!seen.has(key) && seen.add(key), 'duplicate')
  if (own) checkOwnCards(facts, shown, own)
  else {
    need(shown.length === facts.members.length && shown.every((one) => !one.mlkem_key.length), 'manifest-mismatch')
    const probe = Buffer.alloc(32, 1)
    for (const { card } of shown) agree(probe, card.x25519_key, ...blamed)
  }
  return facts
}

function checkNumbers({ roster, study, manifest, members, beacon, decryptors, repeats }, need) {
  const nominees = roster.decryptors
  const came = nominees.filter((member) => members.includes(member))
  let wanted
  try {
    wanted = sizes(roster.members.length, members.length, nominees.length, came.length, study.sizeRule(), repeats)
  } catch (error) {
    need(false, error.cause)
  }
  for (const name of ['a_D', 'n_min', 't', 'k', 'D_max']) need(manifest[name] === wanted[name], 'weak-parameters')
  const committee = {
    everyone: () => members,
    nominated: () => came,
    drawn: () => drawCommittee(beacon, members, wanted.decryptors),
  }
  need(committee[wanted.committee]().join() === decryptors.join(), 'weak-parameters')
}

function checkShown(facts, shown, need) {
  const { manifest, members } = facts
  for (const { card } of shown) {
    need(same(card.cohort, manifest.cohort), 'wrong-cohort', COORDINATOR)
    need(facts.keys.has(card.member) && facts.signed('KeyCard', card, card.member), 'bad-signature', card.member)
  }
  const all = shown.length === members.length
  const bytes = shown.map(({ card }) => m.cardBytes(card))
  const bound = all
    ? shown.every(({ card, path }, i) => card.member === members[i] && !path.length) &&
      same(merkle(bytes).root, manifest.cards_root)
    : shown.every(({ card, path }, i) =>
        pathHolds(manifest.cards_root, bytes[i], members.indexOf(card.member), members.length, path),
      )
  need(bound, 'manifest-mismatch', COORDINATOR)
}

function checkOwnCards(facts, shown, own) {
  const { member } = own.card
  const shownOwn = facts.cards.get(member)
  require_(shownOwn && same(m.cardBytes(shownOwn), m.cardBytes(own.card)), 'manifest-mismatch')
  const { to, from } = facts.pairs(member)
  for (const other of [...facts.decryptors, ...to, ...from]) require_(facts.cards.has(other), 'manifest-mismatch', COORDINATOR)
  if (facts.position(member) >= 0) require_(shown.length === facts.members.length, 'manifest-mismatch', COORDINATOR)
  for (const { card, mlkem_key: key } of shown) {
    const fits = to.includes(card.member) ? key.length > 0 && same(mlkemHash(key), card.mlkem_hash) : key.length === 0
    require_(fits, 'manifest-mismatch', COORDINATOR)
  }
  for (const { card, mlkem_key: key } of shown) require_(!key.length || mlkemKeyIsValid(key), 'mlkem-key-invalid', card.member)
}

/** Ciphertexts for `member` of the manifest that it paired under (CIPHER-1 to CIPHER-3). Returns them by sender. */
export function checkCiphertexts(message, facts, member) {
  const { from } = facts.pairs(member)
  require_(same(message.manifest, facts.hash), 'manifest-mismatch', COORDINATOR)
  require_(m.idsOf(message.shown).join() === from.join(), 'manifest-mismatch', COORDINATOR)
  for (const one of message.shown) {
    const { to } = facts.pairs(one.member)
    const root = rootOfPath(one.ciphertext, to.indexOf(member), to.length, one.path)
    const digest = root && H('pairing', facts.hash, one.member, root)
    require_(digest && facts.signed('Digest', { digest, signature: one.signature }, one.member), 'bad-signature', COORDINATOR)
  }
  return new Map(message.shown.map((one) => [one.member, one.ciphertext]))
}

/** The links of an opening by themselves, and its turn after them (OPEN-12, OPEN-13). */
export function checkLinks(opening) {
  const contexts = new Set(opening.links.map((link) => hex(link.context)))
  require_(contexts.size === opening.links.length, 'chain-broken', COORDINATOR)
  const places = opening.links.filter((link) => same(link.cohort, opening.cohort))
  let [sequence, attempt] = [-1n, 0]
  for (const place of [...places, opening]) {
    const next =
      place.sequence === sequence ? place.attempt === attempt + 1 : place.sequence === sequence + 1n && place.attempt === 0
    require_(next, 'chain-broken', COORDINATOR)
    ;[sequence, attempt] = [place.sequence, place.attempt]
  }
}

const linkAt = (links, context) => links.find((link) => same(link.context, context))
const isSet = (bytes) => !same(bytes, ZERO)

/** OPEN-14 to OPEN-20. `leftOut` are known ends that the links leave out. */
export function checkTerms(opening, facts, leftOut = []) {
  const { terms, links } = opening
  const { study, manifest, repeats } = facts
  const need = (holds, cause = 'terms-refused') => require_(holds, cause, COORDINATOR)
  const ofRun = (link) => same(link.question, study.question) && link.period === manifest.period && !isSet(link.repeats)
  const spends = (link) => ofRun(link) && link.step === terms.step && ['none', 'lost'].includes(link.reason)
  if (!repeats) for (const end of leftOut) need(!spends(end), 'already-summed')
  study.lengthOf(terms.step, manifest.period)
  need(isSet(terms.material) === study.takesMaterial(terms.step))
  if (study.q.withhold) {
    need(isSet(terms.count) === ['rows', 'sum'].includes(terms.step))
    if (terms.step === 'rows') need(terms.withheld.length > 0)
    need(isSet(terms.rows) === (terms.step === 'sum' && terms.withheld.length > 0))
  } else need(!isSet(terms.count))
  const isCertified = (link, step) => link && ofRun(link) && link.reason === 'none' && link.step === step
  if (!repeats) {
    for (const step of ['count', 'rows']) if (isSet(terms[step])) need(isCertified(linkAt(links, terms[step]), step))
    if (study.noisy && terms.step !== 'judge') {
      const place = study.steps.findIndex(([step]) => step === terms.step)
      if (place) need(links.some((link) => isCertified(link, study.steps[place - 1][0])))
    }
    for (const link of links) need(!spends(link), 'already-summed')
  } else {
    const link = linkAt(links, manifest.repeats)
    const isSum = link?.reason === 'none' && link.step === 'sum' && link.period === manifest.period && !isSet(link.repeats)
    need(terms.step === 'sum' && isSum, 'repeat-mismatch')
  }
}

/** FREEZE-2 and FREEZE-3: members in order, and enough. */
export function checkSurvivors(survivors, facts, step) {
  const ordered = survivors.every((member, i) => facts.isMember(member) && (i === 0 || survivors[i - 1] < member))
  require_(ordered, 'survivors-invalid')
  require_(survivors.length >= facts.leastOf(step), 'survivors-too-few')
}

/** FREEZE-5 to FREEZE-9: the certified sets that an attempt rests on. */
export function checkEarlier(earlier, survivors, opening, facts) {
  const { terms, links } = opening
  const { manifest, repeats, study } = facts
  const rests = repeats ? [manifest.repeats] : [terms.count, terms.rows].filter(isSet)
  require_(earlier.length === rests.length, 'malformed')
  const sets = earlier.map(({ survivors: set }) => set)
  rests.forEach((context, i) => {
    const holds = same(m.survivorsHash(context, sets[i]), linkAt(links, context).survivors)
    require_(holds, repeats ? 'repeat-mismatch' : 'count-mismatch')
  })
  if (repeats) return require_(m.idsOf(sets[0]).join() === survivors.join(), 'repeat-mismatch')
  const staying = sets.map((set) => m.idsOf(set).filter((member) => !terms.evicted.includes(member)))
  const isPart = (set) => survivors.every((member) => set.includes(member))
  require_(staying.every(isPart), 'count-mismatch')
  if (staying.length)
    require_(staying[0].filter((member) => !survivors.includes(member)).length <= study.margin, 'count-mismatch')
}

/** What a decryptor's answer must be before it is looked at (ANSWER-1 to ANSWER-3). */
export function checkAnswer(name, message, context, facts) {
  const { member } = message
  require_(same(message.context, context), 'wrong-context', member)
  require_(facts.position(member) >= 0, 'not-a-decryptor', member)
  require_(facts.signed(name, message, member), 'bad-signature', member)
}

/** What an upload's header must be before it is looked at (UPLOAD-1 to UPLOAD-3, BOX-3 to BOX-5). */
export function checkHeader(header, context, facts) {
  const { member } = header
  require_(same(header.context, context), 'wrong-context', member)
  require_(facts.isMember(member), 'unknown-member', member)
  require_(facts.signed('Header', header, member), 'bad-signature', member)
}

/** Whether a certificate has this upload. */
export const certifies = ({ survivors }, header) =>
  survivors.some(({ member, digest }) => member === header.member && same(digest, m.uploadDigest(header)))

/** Votes, certificate and outcome (CERT-1 to CERT-5). Returns the outcome. */
export function checkCertificate(certificate, context, facts, step) {
  require_(same(certificate.context, context), 'wrong-context', COORDINATOR)
  const isSum = certificate.reason === 'none'
  const outcome = isSum ? m.survivorsHash(context, certificate.survivors) : m.voidHash(context, certificate.reason)
  for (const vote of certificate.votes) require_(same(vote.outcome, outcome), 'certificate-invalid')
  for (const vote of certificate.votes) checkAnswer('Vote', vote, context, facts)
  require_(certificate.votes.length >= facts.manifest.t, 'certificate-invalid')
  if (isSum) checkSurvivors(m.idsOf(certificate.survivors), facts, step)
  return outcome
}

export function checkErasure(erasure, context, facts) {
  require_(same(erasure.context, context), 'wrong-context', COORDINATOR)
  for (const report of erasure.reports) {
    require_(!isSet(report.revealed), 'erasure-invalid')
    asAny(() => checkAnswer('Erased', report, context, facts), 'erasure-invalid')
  }
  require_(erasure.reports.length >= facts.q, 'erasure-invalid')
}

export function checkLost(lost, context, facts) {
  require_(same(lost.context, context), 'wrong-context', COORDINATOR)
  require_(m.signatureHolds('Lost', lost, facts.federation), 'bad-signature', 'admin')
}

/** Proofs against dealers (EVICT-1 to EVICT-7). Returns the evicted, ascending. `before`: those that earlier lists evicted. */
export function checkEvictions(evictions, certificate, facts, before) {
  const { context } = certificate
  require_(same(evictions.context, context), 'wrong-context', COORDINATOR)
  const need = (holds) => require_(holds, 'eviction-invalid', COORDINATOR)
  const evicted = evictions.proofs.map((proof) => {
    const { header, index, holders } = proof
    const dealer = header.member
    need(certifies(certificate, header))
    asAny(() => checkHeader(header, context, facts), 'eviction-invalid', COORDINATOR)
    need(index <= facts.manifest.k && facts.commitmentsLead(header, proof.commitments, proof.path))
    for (const { member, share, row, path } of holders) {
      need(facts.rowLeads(header, member, row, path))
      need(facts.isShareCommitted(context, dealer, member, index, share, row))
    }
    const { t } = facts.manifest
    need(holders.length >= t)
    const first = holders.slice(0, t)
    const [places, shares] = [first.map((one) => facts.position(one.member)), first.map((one) => one.share)]
    const secret = asAny(() => recover(places, shares), 'eviction-invalid', COORDINATOR)
    need(!secret || !facts.isCommitted(context, dealer, index, secret, proof.commitments))
    return dealer
  })
  need(evicted.length > 0 && evicted.length <= facts.study.a && before.every((member) => evicted.includes(member)))
  return evicted
}

/** A disclosure of `count` or `rows` (COUNT-2 to COUNT-6). Returns the sums. */
export function recount(disclosure, certificate, facts, step, evicted) {
  const { context } = certificate
  require_(same(disclosure.context, context), 'wrong-context', COORDINATOR)
  const need = (holds) => require_(holds, 'disclosure-invalid', COORDINATOR)
  const staying = certificate.survivors.filter((one) => !evicted.includes(one.member))
  const ids = m.idsOf(staying)
  need(m.idsOf(disclosure.entries.map((entry) => entry.header)).join() === ids.join())
  const length = facts.study.lengthOf(step, facts.manifest.period)
  const sums = new BigUint64Array(length)
  for (const entry of disclosure.entries) {
    const { header } = entry
    need(same(header.context, context) && certifies(certificate, header))
    need(facts.commitmentsLead(header, entry.commitments, entry.path))
    const due = facts.due(header.member, ids)
    need(entry.seeds.map((seed) => seed.index).join() === due.join())
    for (const { index, seed } of entry.seeds) {
      need(facts.isCommitted(context, header.member, index, seed, entry.commitments))
      const other = facts.neighbours(header.member)[index - 1]
      const added = index === 0 || other > header.member
      mask(seed, 32, 0, length).forEach((word, at) => (sums[at] += added ? -word : word))
    }
    const { chunks, chunk_digests: digests } = entry
    need(same(merkle(digests).root, header.chunk_root) && digests.length === Math.ceil(length / CHUNK_ELEMENTS))
    need(chunks.length === digests.length && chunks.every((chunk, at) => same(sha256(chunk), digests[at])))
    chunks.forEach((chunk, at) => {
      const size = Math.min(CHUNK_ELEMENTS, length - at * CHUNK_ELEMENTS)
      const words = asAny(() => unpack(chunk, 32, size), 'disclosure-invalid', COORDINATOR)
      words.forEach((word, place) => (sums[at * CHUNK_ELEMENTS + place] += word))
    })
  }
  return [...sums].map((word) => {
    const sum = Number(centred(BigInt.asUintN(32, word), 32))
    require_(sum >= 0 && sum <= ids.length, 'disclosure-invalid')
    return sum
  })
}

/** What a receipt binds: the digests of the uploads that were delivered, in order. */
export const deliveriesHash = (context, digests) => H('deliveries', context, ...digests)
