/**
 * A member's side of an attempt as a state machine without I/O (wire: States). `receive` takes the bytes of a message,
 * works on a copy of the state, has the copy stored, and only then hands out what is to be sent.
 */
import { randomBytes } from 'node:crypto'
import { deserialize, serialize } from 'node:v8'
import * as c from './checks.mjs'
import { COORDINATOR, Fault, ZERO, hex, pathHolds, require_, same, sha256 } from './encoding.mjs'
import {
  acceptEnds,
  checkCounts,
  checkHistory,
  checkRepeat,
  closeBy,
  endsLeftOut,
  linkOf,
  linkWith,
  sameLink,
} from './history.mjs'
import * as k from './keys.mjs'
import * as m from './messages.mjs'
import { drawCoefficients } from './ring.mjs'
import { openShares, runsOf, seal } from './sealing.mjs'
import { isReserved } from './study.mjs'

/** Where a member's fresh values come from; tests put published ones in its place. */
export const DRAW = {
  bytes: (count) => randomBytes(count),
  coefficients: drawCoefficients,
  encapsulate: (to, key) => k.encapsulate(key),
}

/** The state of an installation: what concerns the federation, and each cohort. Serializable by node:v8. */
export const newState = () => ({
  serial: 0n,
  newestCard: null,
  history: [],
  attempts: new Map(),
  sums: new Map(),
  cohorts: new Map(),
  newestRoster: 0n,
})

export class Member {
  /**
   * `identity`: the Ed25519 seed. `clock()`: Unix seconds. `store(state)`: durable. `allows(opening, facts, state)`: policy and
   * ledger, which throw.
   */
  constructor({ member, identity, state = newState(), clock, draw = DRAW, store = () => {}, allows = () => {} }) {
    Object.assign(this, { member, identity, state, clock, draw, store, allows })
    this.facts = new Map()
  }

  /** Change a copy of the state by `change`, store it, then answer. A refusal leaves everything as it was. */
  change(change) {
    const before = this.state
    this.state = deserialize(serialize(before))
    try {
      const answers = change(this.state)
      this.store(this.state)
      return answers
    } catch (error) {
      this.state = before
      throw error
    }
  }

  #signed = (name, fields) => ({ ...fields, signature: k.sign(this.identity, m.signedDigest(name, fields)) })
  #sign = (name, fields) => m.encode(name, this.#signed(name, fields))

  /** Make the card of a cohort, and keep it with its keys (wire: Cohorts). `drawn` replaces fresh values in tests. */
  enrol({ roster, study, counter, period, repeats = ZERO, drawn = {} }) {
    const parsedRoster = m.decode(roster, 'Roster')
    const parsedStudy = c.checkStudy(study, parsedRoster)
    require_(!isReserved(period), 'terms-refused')
    const cohort = m.cohortOf({ roster_hash: m.rosterHash(parsedRoster), counter, study: parsedStudy.hash, period, repeats })
    const made = this.state.cohorts.get(hex(cohort))
    if (made) return made.enrolment
    return this.change((state) => {
      state.serial = drawn.serial ?? state.serial + 1n
      const seed = drawn.mlkem_seed ?? this.draw.bytes(64)
      const secret = drawn.x25519 ?? this.draw.bytes(32)
      const key = k.mlkemPublic(seed)
      const card = this.#sign('KeyCard', {
        cohort,
        member: this.member,
        x25519_key: k.publicOf('x25519', secret),
        mlkem_hash: k.mlkemHash(key),
        nonce: drawn.nonce ?? this.draw.bytes(32),
        expires: BigInt(parsedStudy.content.notes.expires),
        serial: state.serial,
      })
      state.newestCard = card
      const enrolment = m.encode('Enrolment', { card: m.decode(card), mlkem_key: key })
      if (parsedRoster.number > state.newestRoster) state.newestRoster = parsedRoster.number
      state.cohorts.set(hex(cohort), {
        cohort,
        roster,
        study,
        card,
        enrolment,
        enrolled_s: this.clock(),
        phase: 'enrolled',
        secret,
        seed,
        manifests: 0,
        sequence: 0n,
        place: [0n, 0],
      })
      return enrolment
    })
  }

  /** Take a roster of the federation, by its number, that lists this member (ROSTER-1 to ROSTER-5). */
  acceptRoster(bytes, federation) {
    const roster = c.checkRoster(bytes, federation)
    const hash = m.rosterHash(roster)
    const { newestRoster, rosterHash } = this.state
    require_(roster.number >= newestRoster, 'roster-rollback', COORDINATOR)
    require_(roster.number > newestRoster || !rosterHash || same(rosterHash, hash), 'roster-rollback', 'admin')
    const own = k.publicOf('ed25519', this.identity)
    require_(
      roster.members.some((one) => one.member === this.member && same(one.key, own)),
      'unknown-member',
      this.member,
    )
    this.change((state) =>
      Object.assign(state, { newestRoster: roster.number, rosterHash: hash, revoked: roster.revoked.map(hex) }),
    )
    return roster
  }

  /** The newest card that the coordinator has of this key: refuse to go on in a restored folder (RESTORE-1, RESTORE-2). */
  checkNewestCard(bytes) {
    const card = m.decode(bytes, 'KeyCard')
    require_(m.signatureHolds('KeyCard', card, k.publicOf('ed25519', this.identity)), 'bad-signature', COORDINATOR)
    const { serial, newestCard } = this.state
    require_(card.serial < serial || (card.serial === serial && same(bytes, newestCard)), 'state-restored', this.member)
  }

  /** What follows from a cohort's roster, study and manifest; parsed once. */
  factsOf(cohort) {
    const name = hex(cohort.cohort) + hex(sha256(cohort.cards))
    if (!this.facts.has(name)) {
      const roster = m.decode(cohort.roster, 'Roster')
      const { manifest, shown } = m.decode(cohort.cards, 'Cards')
      this.facts.set(name, new c.Cohort(roster, c.checkStudy(cohort.study, roster), manifest, shown))
    }
    return this.facts.get(name)
  }

  /** Take a message of `cohort` (its hash). Returns the messages to send. */
  receive(cohortHash, bytes) {
    this.tick(cohortHash)
    const message = m.decode(bytes)
    const handler = HANDLERS[message.type]
    require_(handler, 'unknown-message')
    return this.change((state) => handler.call(this, state.cohorts.get(hex(cohortHash)), message, state))
  }

  /** What the clock alone brings: keys lapse, and an attempt past its latest end is erased (LAPSE-1, LAPSE-2). */
  tick(cohortHash) {
    const cohort = this.state.cohorts.get(hex(cohortHash))
    const now = this.clock()
    if (['enrolled', 'paired'].includes(cohort.phase)) {
      const { windows } = this.studyOf(cohort).q
      if (now >= cohort.enrolled_s + windows.enrol + 4 * windows.answer)
        this.change((state) => this.lapse(state.cohorts.get(hex(cohortHash))))
    }
    const attempt = cohort.attempt
    if (attempt && !['erased', 'ended'].includes(attempt.phase) && now >= Number(attempt.latest_end))
      this.change((state) => this.erase(state.cohorts.get(hex(cohortHash)), state))
  }

  studyOf = (cohort) => c.checkStudy(cohort.study, m.decode(cohort.roster, 'Roster'))

  lapse(cohort) {
    Object.assign(cohort, { phase: 'lapsed', secret: null, seed: null, made: null, shared: null })
  }

  /** Forget the attempt's shares and the keys up to its sequence. The header stays: a certificate may close it yet. */
  erase(cohort, state) {
    const { attempt } = cohort
    state.attempts.get(hex(attempt.context)).tookPart = true
    Object.assign(attempt, { phase: 'erased', shares: new Map(), vector: null, chunks: null })
    this.moveKeys(cohort, attempt.sequence + 1n)
    cohort.place = [attempt.sequence + 1n, 0]
  }

  moveKeys(cohort, sequence) {
    for (; cohort.sequence < sequence; cohort.sequence++) {
      for (const keys of [cohort.masks, cohort.boxes])
        for (const [peer, key] of keys) keys.set(peer, k.ratchet(key, cohort.cohort, cohort.sequence + 1n))
    }
  }

  takeCards(cohort, cards) {
    require_(['enrolled', 'paired'].includes(cohort.phase), 'wrong-phase')
    const { manifest } = cards
    if (cohort.cards) {
      if (same(m.manifestHash(manifest), this.factsOf(cohort).hash)) return [cohort.pairing]
      const before = this.factsOf(cohort)
      const fewer = manifest.members.length < before.members.length && manifest.members.every(before.isMember)
      const isSame = (card, known) => !known || same(m.cardBytes(known), m.cardBytes(card))
      const unchanged = cards.shown.every(({ card }) => isSame(card, before.cards.get(card.member)))
      require_(fewer && unchanged && cohort.manifests < 3, 'manifest-mismatch', COORDINATOR)
    }
    const facts = this.factsShown(cohort, cards)
    const { to, from } = facts.pairs(this.member)
    const shared = new Map([...to, ...from].map((peer) => [peer, k.agree(cohort.secret, facts.cards.get(peer).x25519_key, peer)]))
    const keyOf = new Map(cards.shown.map((one) => [one.card.member, one.mlkem_key]))
    const made = new Map(to.map((peer) => [peer, this.draw.encapsulate(peer, keyOf.get(peer), facts)]))
    const pairing = this.#sign('Pairing', {
      manifest: facts.hash,
      member: this.member,
      ciphertexts: to.map((peer) => made.get(peer).ciphertext),
    })
    Object.assign(cohort, { phase: 'paired', cards: cards.bytes, pairing, made, shared, manifests: cohort.manifests + 1 })
    return [pairing]
  }

  survivorsOf(context) {
    const attempt = this.state.attempts.get(hex(context))
    return attempt?.certificate ? m.idsOf(m.decode(attempt.certificate).survivors) : null
  }

  takeCiphertexts(cohort, message) {
    require_(cohort.phase === 'paired', 'wrong-phase')
    const facts = this.factsOf(cohort)
    const taken = c.checkCiphertexts(message, facts, this.member)
    const near = facts.neighbours(this.member)
    const decrypts = facts.position(this.member) >= 0
    const [masks, boxes] = [new Map(), new Map()]
    for (const [peer, shared] of cohort.shared) {
      const made = cohort.made.get(peer)
      const [from, to] = made ? [this.member, peer] : [peer, this.member]
      const ciphertext = made?.ciphertext ?? taken.get(peer)
      const secret = made?.secret ?? k.decapsulate(cohort.seed, ciphertext)
      const hash = made ? facts.cards.get(peer).mlkem_hash : m.decode(cohort.card).mlkem_hash
      const root = (purpose) => k.rootKey(purpose, shared, { from, to, hash, ciphertext, secret }, cohort.cohort, facts.hash)
      if (near.includes(peer)) masks.set(peer, root('pair-mask'))
      if (decrypts || facts.position(peer) >= 0) boxes.set(peer, root('pair-box'))
    }
    Object.assign(cohort, { phase: 'ready', secret: null, seed: null, made: null, shared: null, masks, boxes })
    return []
  }

  takeOpening(cohort, opening, state) {
    require_(cohort.phase === 'ready', 'wrong-phase')
    const { attempt } = cohort
    if (attempt && !['closed', 'ended'].includes(attempt.phase) && same(attempt.opening, opening.bytes)) {
      require_(attempt.phase !== 'erased', 'terms-expired')
      return attempt.upload ? [attempt.upload] : []
    }
    require_(!attempt || ['erased', 'closed', 'ended'].includes(attempt.phase), 'wrong-sequence', COORDINATOR)
    const facts = this.factsOf(cohort)
    const { study } = facts
    const now = this.clock()
    const { terms } = opening
    require_(same(opening.cohort, cohort.cohort), 'wrong-cohort', COORDINATOR)
    require_(m.signatureHolds('Opening', opening, facts.roster.coordinator), 'bad-signature', COORDINATOR)
    for (const card of facts.cards.values()) require_(now < Number(card.expires), 'card-expired')
    require_(now < study.content.notes.expires && !state.revoked?.includes(hex(study.hash)), 'study-refused')
    require_(now < Number(terms.latest_end), 'terms-expired')
    require_(Number(terms.latest_end) <= now + c.MONTH_S, 'terms-refused', COORDINATOR)
    require_(!isBehind(opening, cohort.place), 'wrong-sequence')
    acceptEnds(opening, state)
    checkHistory(opening, state)
    c.checkLinks(opening)
    c.checkTerms(opening, facts, endsLeftOut(opening, state))
    if (facts.repeats) checkRepeat(facts, state)
    checkCounts(opening, facts, state, this.member)
    require_(facts.roster.number >= state.newestRoster, 'roster-rollback')
    this.allows(opening, facts, state)
    state.history = opening.links
    this.begin(cohort, opening, facts, state)
    return []
  }

  /** Take the place of an opening: its attempt is the cohort's. */
  begin(cohort, opening, facts, state) {
    this.moveKeys(cohort, opening.sequence)
    const { context } = m.contextOf(facts.federation, facts.manifest, opening)
    cohort.place = [opening.sequence, opening.attempt]
    cohort.attempt = {
      phase: 'opened',
      context,
      opening: opening.bytes,
      sequence: opening.sequence,
      latest_end: opening.terms.latest_end,
      shares: new Map(),
      delivered: new Map(),
      evicted: [],
    }
    state.attempts.set(hex(context), {
      link: linkOf(facts, opening, context),
      opening: opening.bytes,
      terms: opening.terms,
      content: facts.study.content,
      evicted: [],
    })
  }

  /** Take an opening that is past its latest end only to erase, for an ErasureRequest of `context` (ERASE-1). */
  openToErase(cohortHash, bytes, context) {
    const opening = m.decode(bytes, 'Opening')
    return this.change((state) => {
      const cohort = state.cohorts.get(hex(cohortHash))
      require_(cohort.phase === 'ready', 'wrong-phase')
      const facts = this.factsOf(cohort)
      require_(m.signatureHolds('Opening', opening, facts.roster.coordinator), 'bad-signature', COORDINATOR)
      const follows =
        same(opening.cohort, cohort.cohort) && same(m.contextOf(facts.federation, facts.manifest, opening).context, context)
      require_(follows, 'wrong-context', COORDINATOR)
      require_(this.clock() >= Number(opening.terms.latest_end), 'wrong-phase', COORDINATOR)
      c.checkLinks(opening)
      require_(!isBehind(opening, cohort.place), 'wrong-sequence')
      this.begin(cohort, opening, facts, state)
      this.erase(cohort, state)
    })
  }

  /** Refuse a folder whose member stands in the certified set of a link that it does not know (RESTORE-3, RESTORE-4). */
  checkForgotten(link, { cards, opening, closing }) {
    const cohort = this.state.cohorts.get(hex(link.cohort))
    const isFormed = cohort.phase === 'ready'
    require_((isFormed || cards) && opening && closing, 'outcome-missing', COORDINATOR)
    const facts = isFormed ? this.factsOf(cohort) : this.factsShown(cohort, m.decode(cards, 'Cards'))
    const certified = () => {
      const parsed = m.decode(opening, 'Opening')
      const { context } = m.contextOf(facts.federation, facts.manifest, parsed)
      const set = m.decode(closing, 'Certificate')
      c.checkCertificate(set, link.context, facts, parsed.terms.step)
      const isEnd = same(context, link.context) && sameLink(linkWith({ link: linkOf(facts, parsed, context) }, set), link)
      return require_(isEnd, 'outcome-missing') ?? set
    }
    const set = c.asAny(certified, 'outcome-missing', COORDINATOR)
    require_(!set.survivors.some((one) => one.member === this.member), 'state-restored', this.member)
  }

  /** Refuse a link without cards, unless the cohort's manifest, which the context proves, is without this member (RESTORE-3). */
  checkLeftOut(link, { manifest, opening }) {
    const { federation } = m.decode(this.state.cohorts.get(hex(link.cohort)).roster, 'Roster')
    const isLeftOut = () => {
      const [formed, opened] = [m.decode(manifest, 'Manifest'), m.decode(opening, 'Opening')]
      return same(m.contextOf(federation, formed, opened).context, link.context) && !formed.members.includes(this.member)
    }
    require_(manifest && opening && c.asAny(isLeftOut, 'outcome-missing', COORDINATOR), 'outcome-missing', COORDINATOR)
  }

  /** What follows from cards that are shown for a cohort that the member sent a card to. */
  factsShown(cohort, cards) {
    const { repeats } = cards.manifest
    const repeated = same(repeats, ZERO) ? null : this.survivorsOf(repeats)
    const roster = m.decode(cohort.roster, 'Roster')
    return c.checkCards(cards, roster, c.checkStudy(cohort.study, roster), { card: m.decode(cohort.card) }, repeated)
  }

  /** Announce a vector for the opened attempt (wire: Uploads). Returns the Upload. `chunks()` then has what is to be put. */
  upload(cohortHash, vector) {
    this.tick(cohortHash)
    const now = this.state.cohorts.get(hex(cohortHash))
    if (now.attempt.upload) return now.attempt.upload
    require_(now.attempt.phase === 'opened', 'wrong-phase')
    return this.change((state) => {
      const cohort = state.cohorts.get(hex(cohortHash))
      const { attempt } = cohort
      const facts = this.factsOf(cohort)
      const { step } = m.decode(attempt.opening).terms
      require_(vector.length === facts.study.lengthOf(step, facts.manifest.period), 'malformed')
      checkHistory(m.decode(attempt.opening), state, attempt)
      this.allows(m.decode(attempt.opening), facts, state)
      const bits = facts.study.bitsOf(step)
      const {
        header: unsigned,
        chunks,
        shares,
        ...lists
      } = seal(facts, this.member, attempt.context, cohort, vector, bits, this.draw)
      const header = this.#signed('Header', unsigned)
      const upload = m.encode('Upload', { header, ...lists })
      if (shares) attempt.shares.set(this.member, shares)
      Object.assign(attempt, { phase: 'uploaded', upload, chunks, header })
      Object.assign(state.attempts.get(hex(attempt.context)), { tookPart: true, announced: true })
      return upload
    })
  }

  /** What a result's record is held against (analysis: Results). */
  evidence(context) {
    const held = this.state.attempts.get(hex(context))
    const cohort = this.state.cohorts.get(hex(held.link.cohort))
    const opening = m.decode(held.opening)
    const sums = (of) => this.state.sums.get(hex(of)) ?? null
    return {
      facts: this.factsOf(cohort),
      opening,
      certificate: m.decode(held.certificate),
      evicted: held.evicted,
      holders: sums(opening.terms.count),
      reached: sums(opening.terms.rows),
    }
  }

  chunks = (cohortHash) => this.state.cohorts.get(hex(cohortHash)).attempt.chunks

  /** The cohort's attempt, if it is the one that a message names; `wrong-phase` where there is none. */
  attemptOf(cohort, message, expired = true) {
    require_(cohort.phase === 'ready' && cohort.attempt, 'wrong-phase')
    const { attempt } = cohort
    require_(same(attempt.context, message.context), 'wrong-context', COORDINATOR)
    if (expired && attempt.phase === 'erased') throw new Fault(attempt.report ? 'wrong-phase' : 'terms-expired')
    return attempt
  }

  requireDecryptor = (facts) => require_(facts.position(this.member) >= 0, 'not-a-decryptor', this.member)

  takeDeliveries(cohort, message, state) {
    const attempt = this.attemptOf(cohort, message)
    const facts = this.factsOf(cohort)
    this.requireDecryptor(facts)
    if (attempt.receipt) return [attempt.receipt]
    require_(['opened', 'uploaded'].includes(attempt.phase), 'wrong-phase')
    const { context } = attempt
    for (const { header } of message.deliveries) {
      c.checkHeader(header, context, facts)
      require_(header.member !== this.member, 'malformed', COORDINATOR)
    }
    const place = facts.position(this.member)
    for (const { header, box, box_path, row, row_path } of message.deliveries) {
      const leads =
        facts.rowLeads(header, this.member, row, row_path) &&
        pathHolds(header.box_root, box, place, facts.decryptors.length, box_path)
      require_(leads, 'chunk-mismatch', COORDINATOR)
    }
    const [dealers, complaints] = [[], []]
    for (const delivery of message.deliveries) {
      const { header } = delivery
      const dealer = header.member
      const shares = openShares(facts, this.member, cohort, delivery)
      if (shares) attempt.shares.set(dealer, shares)
      ;(shares ? dealers : complaints).push(dealer)
      attempt.delivered.set(dealer, m.uploadDigest(header))
    }
    const uploads = c.deliveriesHash(context, [...attempt.delivered.values()])
    const receipt = this.#sign('Receipt', { context, member: this.member, uploads, dealers, complaints })
    Object.assign(attempt, { phase: 'checked', receipt })
    state.attempts.get(hex(context)).tookPart = true
    return [receipt]
  }

  takeFreeze(cohort, message, state) {
    const attempt = this.attemptOf(cohort, message)
    const facts = this.factsOf(cohort)
    require_(attempt.outcome || attempt.phase === 'checked', 'wrong-phase')
    const survivors = message.headers.map((header) => ({ member: header.member, digest: m.uploadDigest(header) }))
    const outcome = m.survivorsHash(attempt.context, survivors)
    if (attempt.outcome) {
      require_(same(attempt.outcome, outcome), 'already-voted')
      return [attempt.vote]
    }
    try {
      this.checkProposal(attempt, facts, message, survivors, state)
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      return [this.#sign('Refusal', { context: attempt.context, member: this.member, cause: error.cause })]
    }
    return this.vote(attempt, outcome, state)
  }

  checkProposal(attempt, facts, message, survivors, state) {
    checkHistory(m.decode(attempt.opening), state, attempt)
    const opening = m.decode(attempt.opening)
    const ids = m.idsOf(survivors)
    c.checkSurvivors(ids, facts, opening.terms.step)
    require_(!facts.windowExceeded(ids), 'window-exceeded')
    c.checkEarlier(message.earlier, ids, opening, facts)
    for (const { member, digest } of survivors) {
      if (member === this.member) require_(attempt.header && same(m.uploadDigest(attempt.header), digest), 'own-upload-changed')
      else require_(attempt.delivered.has(member) && same(attempt.delivered.get(member), digest), 'survivors-invalid')
    }
  }

  vote(attempt, outcome, state) {
    const vote = this.#sign('Vote', { context: attempt.context, member: this.member, outcome })
    Object.assign(attempt, { phase: 'voted', vote, outcome })
    state.attempts.get(hex(attempt.context)).tookPart = true
    return [vote]
  }

  takeVoidRequest(cohort, message, state) {
    const attempt = this.attemptOf(cohort, message)
    this.requireDecryptor(this.factsOf(cohort))
    const outcome = m.voidHash(attempt.context, message.reason)
    if (attempt.outcome) {
      require_(same(attempt.outcome, outcome), 'already-voted')
      return [attempt.vote]
    }
    require_(!['closed', 'ended'].includes(attempt.phase), 'wrong-phase')
    return this.vote(attempt, outcome, state)
  }

  takeCertificate(cohort, certificate, state) {
    const attempt = this.attemptOf(cohort, certificate, false)
    const facts = this.factsOf(cohort)
    const { terms } = m.decode(attempt.opening)
    const ledger = state.attempts.get(hex(attempt.context))
    require_(!ledger.end || ledger.certificate, 'wrong-context', COORDINATOR)
    const outcome = c.checkCertificate(certificate, attempt.context, facts, terms.step)
    const own = certificate.survivors.find((one) => one.member === this.member)
    if (own) require_(attempt.header && same(own.digest, m.uploadDigest(attempt.header)), 'own-upload-changed')
    ledger.certificate = attempt.certificate = certificate.bytes
    if (certificate.reason !== 'none') {
      ledger.end ??= linkWith(ledger, certificate)
      if (attempt.phase !== 'erased') Object.assign(attempt, { phase: 'ended', shares: new Map() })
      return []
    }
    if (attempt.phase === 'erased') return []
    if (attempt.reveal) return [attempt.reveal]
    attempt.phase = 'closed'
    this.moveKeys(cohort, attempt.sequence + 1n)
    cohort.place = [attempt.sequence + 1n, 0]
    return attempt.receipt ? this.reveal(attempt, facts, outcome) : []
  }

  reveal(attempt, facts, outcome) {
    const { survivors } = m.decode(attempt.certificate)
    const staying = m.idsOf(survivors).filter((member) => !attempt.evicted.includes(member))
    const runs = runsOf(facts, attempt.shares, staying)
    attempt.reveal = this.#sign('Reveal', {
      context: attempt.context,
      member: this.member,
      outcome,
      evicted: attempt.evicted,
      runs,
    })
    attempt.revealed = outcome
    return [attempt.reveal]
  }

  takeEvictions(cohort, evictions, state) {
    const attempt = this.attemptOf(cohort, evictions)
    const facts = this.factsOf(cohort)
    require_(attempt.phase === 'closed', 'wrong-phase')
    const certificate = m.decode(attempt.certificate)
    attempt.evicted = c.checkEvictions(evictions, certificate, facts, attempt.evicted)
    state.attempts.get(hex(attempt.context)).evicted = attempt.evicted
    return attempt.revealed ? this.reveal(attempt, facts, attempt.revealed) : []
  }

  takeErasureRequest(cohort, request) {
    const attempt = this.attemptOf(cohort, request, false)
    require_(attempt.phase === 'erased', 'wrong-phase', COORDINATOR)
    this.requireDecryptor(this.factsOf(cohort))
    attempt.report ??= this.#sign('Erased', { context: attempt.context, member: this.member, revealed: attempt.revealed ?? ZERO })
    return [attempt.report]
  }

  takeErasure(cohort, erasure, state) {
    const attempt = this.attemptOf(cohort, erasure, false)
    c.checkErasure(erasure, attempt.context, this.factsOf(cohort))
    closeBy('erased', state.attempts.get(hex(attempt.context)))
    return []
  }

  takeLost(cohort, lost, state) {
    const attempt = this.attemptOf(cohort, lost, false)
    c.checkLost(lost, attempt.context, this.factsOf(cohort))
    require_(this.clock() >= Number(attempt.latest_end), 'wrong-phase', 'admin')
    closeBy('lost', state.attempts.get(hex(attempt.context)))
    return []
  }

  takeDisclosure(cohort, disclosure, state) {
    const attempt = this.attemptOf(cohort, disclosure)
    const { terms } = m.decode(attempt.opening)
    require_(attempt.phase === 'closed' && ['count', 'rows'].includes(terms.step), 'wrong-phase')
    const sums = c.recount(disclosure, m.decode(attempt.certificate), this.factsOf(cohort), terms.step, attempt.evicted)
    state.sums.set(hex(attempt.context), sums)
    return []
  }
}

const isBehind = (opening, [sequence, attempt]) =>
  opening.sequence < sequence || (opening.sequence === sequence && opening.attempt < attempt)

/** By its name: what takes a message. */
const HANDLERS = Object.fromEntries(
  Object.getOwnPropertyNames(Member.prototype)
    .filter((name) => name.startsWith('take'))
    .map((name) => [name.slice('take'.length), Member.prototype[name]]),
)
