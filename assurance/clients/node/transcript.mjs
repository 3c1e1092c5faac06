/** The auditor: replay a transcript, and name who broke which rule (analysis: Transcripts). */
import * as c from './checks.mjs'
import { cover } from './disputes.mjs'
import { COORDINATOR, Fault, H, ZERO, hex, pathHolds, require_, same } from './encoding.mjs'
import { verify } from './keys.mjs'
import * as m from './messages.mjs'

const UNCERTIFIED = ['collecting', 'checking', 'freezing', 'voiding']
const AFTER_FREEZE = ['freezing', 'voiding', 'revealing', 'erasing', 'closed']
const ALL = ['collecting', 'checking', ...AFTER_FREEZE]
/** Each kind of entry, and the stages in which it may stand (analysis: Transcripts). */
const STAGES = {
  UploadSummary: ['collecting'],
  Receipt: ALL,
  Freeze: ['checking'],
  VoidRequest: ['collecting', 'checking', 'freezing'],
  Vote: AFTER_FREEZE,
  Refusal: ['freezing'],
  Certificate: ['freezing', 'voiding'],
  RevealSummary: ['revealing', 'erasing', 'closed'],
  BadRun: ['revealing'],
  Evictions: ['revealing'],
  Erased: ALL,
  Erasure: ['erasing'],
  Lost: [...UNCERTIFIED, 'revealing', 'erasing'],
}

/** The head of a transcript's hash chain. */
export const headOf = (entries) => entries.reduce((head, entry) => H('transcript', head, entry), ZERO)

/**
 * Replay `entries`. Refuses what makes the transcript one of no attempt: its roster, study, cards or opening.
 * Returns findings (entry, parties, cause), refusals that nobody can judge, whom it evicts and counts.
 */
export function audit(entries, signature, federation) {
  const roster = c.checkRoster(entries[0], federation)
  const study = c.checkStudy(entries[1], roster)
  const facts = c.checkCards(m.decode(entries[2], 'Cards'), roster, study)
  const opening = m.decode(entries[3], 'Opening')
  require_(same(opening.cohort, facts.manifest.cohort), 'wrong-cohort', COORDINATOR)
  require_(m.signatureHolds('Opening', opening, roster.coordinator), 'bad-signature', COORDINATOR)
  c.checkLinks(opening)
  c.checkTerms(opening, facts)
  const { context } = m.contextOf(federation, facts.manifest, opening)
  const head = headOf(entries)
  const replay = new Replay(facts, opening, context)
  entries.slice(4).forEach((bytes, i) => replay.take(bytes, i + 4))
  const signed = verify(roster.coordinator, H('transcript', context, head), signature)
  return { context, head, signed, ...replay.close(signed) }
}

class Replay {
  constructor(facts, opening, context) {
    Object.assign(this, { facts, opening, context, step: opening.terms.step })
    this.findings = []
    this.seen = new Set()
    this.stage = 'collecting'
    this.uploads = new Map()
    this.receipts = new Map()
    this.votes = new Map()
    this.asked = new Set()
    this.unasked = []
    this.refused = new Map()
    this.proposal = null
    this.reason = null
    this.certificate = null
    this.shown = new Set()
    this.reveals = []
    this.reports = new Map()
    this.evicted = []
    this.ended = false
  }

  find(entry, cause, ...parties) {
    this.findings.push({ entry, parties: parties.length ? parties : [COORDINATOR], cause })
  }

  take(bytes, entry) {
    try {
      const message = this.decoded(bytes)
      require_(!this.seen.has(hex(bytes)), 'duplicate')
      this.requireStage(...STAGES[message.type])
      this.seen.add(hex(bytes))
      this[`on${message.type}`](message, entry)
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      this.find(entry, error.cause)
    }
  }

  decoded(bytes) {
    try {
      const message = m.decode(bytes)
      if (message.type in STAGES) return message
    } catch (error) {
      if (!(error instanceof Fault)) throw error
    }
    throw new Fault('unknown-message')
  }

  requireAnswer = (name, message) => c.checkAnswer(name, message, this.context, this.facts)

  requireStage = (...stages) => require_(stages.includes(this.stage), 'wrong-phase')

  onUploadSummary({ header, commitments, path }, entry) {
    const { member } = header
    c.checkHeader(header, this.context, this.facts)
    const before = this.uploads.get(member)
    if (before) {
      require_(!same(before.digest, m.uploadDigest(header)), 'duplicate')
      return this.find(entry, 'upload-conflict', member)
    }
    require_(this.facts.commitmentsLead(header, Buffer.concat(commitments), path), 'upload-misshapen')
    this.uploads.set(member, { header, digest: m.uploadDigest(header), commitments })
  }

  /** Whether `signed` has another statement of this member: a finding against it. */
  contradicts(signed, message, of, entry, cause) {
    const before = signed.get(message.member)
    const other = before !== undefined && of(before) !== of(message)
    if (other) this.find(entry, cause, message.member)
    return other
  }

  onReceipt(receipt, entry) {
    this.requireAnswer('Receipt', receipt)
    const statement = (one) => [hex(one.uploads), one.dealers, one.complaints].join(' ')
    if (this.contradicts(this.receipts, receipt, statement, entry, 'conflict')) return
    this.requireStage('collecting', 'checking', 'freezing', 'revealing')
    const named = [...receipt.dealers, ...receipt.complaints]
    require_(
      new Set(named).size === named.length && named.every((one) => this.uploads.has(one) && one !== receipt.member),
      'malformed',
    )
    const whole = this.whole()
    if (!this.receipts.has(receipt.member)) this.receipts.set(receipt.member, receipt)
    if (['collecting', 'checking'].includes(this.stage)) return (this.stage = 'checking')
    require_(this.covers(receipt, whole), 'survivors-invalid')
    for (const dealer of receipt.complaints) this.find(entry, 'box-refused', dealer, receipt.member)
  }

  /** The uploads that receipts name, ascending. */
  whole = () => [...new Set([...this.receipts.values()].flatMap(({ dealers, complaints }) => [...dealers, ...complaints]))].sort()

  covers({ member, dealers, complaints, uploads }, whole) {
    const others = whole.filter((one) => one !== member)
    const digests = others.map((one) => this.uploads.get(one).digest)
    return [...dealers, ...complaints].sort().join() === others.join() && same(uploads, c.deliveriesHash(this.context, digests))
  }

  /** AUDIT-9, AUDIT-24 and AUDIT-25. Returns the disputes, which no single entry shows. */
  findDisputes() {
    const whole = this.whole()
    for (const receipt of this.receipts.values()) require_(this.covers(receipt, whole), 'survivors-invalid')
    const complaints = [...this.receipts.values()].flatMap(({ member, complaints: about }) =>
      about.map((dealer) => ({ cause: 'box-refused', parties: [dealer, member] })),
    )
    const disputes = [...this.edges(whole), ...complaints]
    for (const { cause, parties } of disputes) this.find(null, cause, ...parties)
    return disputes
  }

  /** Pairs that committed to different masks. */
  edges(whole) {
    const found = []
    for (const u of whole) {
      const upload = this.uploads.get(u)
      this.facts.neighbours(u).forEach((v, i) => {
        if (u > v || !whole.includes(v)) return
        const other = this.uploads.get(v)
        const back = other.commitments[1 + this.facts.neighbours(v).indexOf(u)]
        if (!same(upload.commitments[1 + i], back)) found.push({ cause: 'edge-disagreement', parties: [u, v] })
      })
    }
    return found
  }

  /** `survivors` of wire: Survivors. */
  survivors(disputes, earlier) {
    const { t, a_D } = this.facts.manifest
    const { evicted } = this.opening.terms
    const clean = (dealer) =>
      [...this.receipts.values()].filter(({ member, dealers }) => member === dealer || dealers.includes(dealer)).length
    const counted = (member) =>
      !evicted.includes(member) && earlier.every(({ survivors }) => survivors.some((one) => one.member === member))
    const staying = this.whole().filter(
      (member) => clean(member) >= t && (this.facts.repeats || !earlier.length || counted(member)),
    )
    const contested = disputes.filter(({ cause, parties }) => cause !== 'box-refused' || clean(parties[0]) < t + a_D)
    const without = (some) => {
      const dropped = cover(this.context, some, this.facts.study.a)
      return staying.filter((member) => !dropped.includes(member))
    }
    const chosen = without(contested)
    if (!contested.length || this.mayPropose(chosen, earlier)) return chosen
    return without(contested.filter(({ parties }) => parties.every((party) => staying.includes(party))))
  }

  mayPropose(ids, earlier) {
    try {
      this.checkProposal(ids, earlier)
      return true
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      return false
    }
  }

  /** FREEZE-2 to FREEZE-9. */
  checkProposal(ids, earlier) {
    c.checkSurvivors(ids, this.facts, this.step)
    require_(!this.facts.windowExceeded(ids), 'window-exceeded')
    c.checkEarlier(earlier, ids, this.opening, this.facts)
  }

  onFreeze({ context, headers, earlier }) {
    this.stage = 'freezing'
    require_(same(context, this.context), 'wrong-context')
    const survivors = headers.map((header) => ({ member: header.member, digest: m.uploadDigest(header) }))
    const ids = m.idsOf(survivors)
    this.proposal = { survivors, ids, earlier }
    this.asked.add(hex(m.survivorsHash(this.context, survivors)))
    const wanted = this.survivors(this.findDisputes(), earlier)
    require_(wanted.join() === ids.join() && survivors.every((one) => this.announced(one)), 'survivors-invalid')
    this.checkProposal(ids, earlier)
  }

  announced = ({ member, digest }) => this.uploads.has(member) && same(this.uploads.get(member).digest, digest)

  onVoidRequest({ context, reason }) {
    Object.assign(this, { stage: 'voiding', reason })
    this.asked.add(hex(m.voidHash(this.context, reason)))
    require_(same(context, this.context), 'wrong-context')
  }

  onVote(vote, entry) {
    this.requireAnswer('Vote', vote)
    if (this.contradicts(this.votes, vote, (one) => hex(one.outcome), entry, 'already-voted')) return
    const outcome = hex(vote.outcome)
    require_(!this.certificate || outcome !== hex(this.outcome), 'wrong-phase')
    if (this.votes.has(vote.member)) return
    this.votes.set(vote.member, vote)
    if (!this.asked.has(outcome)) this.unasked.push([entry, vote])
  }

  onRefusal(refusal, entry) {
    this.requireAnswer('Refusal', refusal)
    require_(!this.refused.has(refusal.member), 'duplicate')
    this.refused.set(refusal.member, { entry, ...refusal })
  }

  /** Whether a refusal's cause follows from the proposal; null: only its sender can know. */
  follows({ member, cause }) {
    const { survivors, ids, earlier } = this.proposal ?? { survivors: [], ids: [], earlier: [] }
    const whole = this.whole()
    const shown = (one) => whole.includes(one.member) && this.announced(one)
    switch (cause) {
      case 'survivors-too-few':
        return ids.length < this.facts.leastOf(this.step)
      case 'window-exceeded':
        return this.facts.windowExceeded(ids)
      case 'malformed':
      case 'repeat-mismatch':
      case 'count-mismatch':
        return !this.mayPropose(ids, earlier)
      case 'own-upload-changed':
        return survivors.some((one) => one.member === member && !shown(one))
      case 'survivors-invalid': {
        const receipt = this.receipts.get(member)
        const ascending = ids.join() === [...new Set(ids)].sort().join()
        return receipt ? !(this.covers(receipt, whole) && survivors.every(shown) && ascending) : null
      }
      default:
        return null
    }
  }

  onCertificate(certificate, entry) {
    const before = this.stage
    const isSum = certificate.reason === 'none'
    this.stage = isSum ? 'revealing' : 'closed'
    const outcome = c.checkCertificate(certificate, this.context, this.facts, this.step)
    Object.assign(this, { certificate, outcome, ended: true })
    const noted = certificate.votes.every((vote) => this.votes.has(vote.member))
    for (const vote of certificate.votes) {
      if (this.contradicts(this.votes, vote, (one) => hex(one.outcome), entry, 'already-voted')) continue
      if (!this.votes.has(vote.member)) this.votes.set(vote.member, vote)
    }
    require_(before === (isSum ? 'freezing' : 'voiding') && (isSum || certificate.reason === this.reason), 'certificate-invalid')
    const proposed = this.proposal?.survivors ?? []
    const asSet = (set) => set.map(({ member, digest }) => member + hex(digest)).join()
    require_(!isSum || asSet(certificate.survivors) === asSet(proposed), 'survivors-invalid')
    require_(noted, 'certificate-invalid')
  }

  /** Whether a reveal, or that of a BadRun, is for the certificate's outcome. */
  isDue(reveal, entry) {
    this.requireAnswer('RevealSummary', reveal)
    require_(this.certificate, 'certificate-invalid')
    if (same(reveal.outcome, this.outcome)) return true
    this.find(entry, 'reveal-misshapen', reveal.member)
    return false
  }

  onRevealSummary(reveal, entry) {
    if (!this.isDue(reveal, entry)) return
    this.requireStage('revealing')
    require_(
      reveal.evicted.every((member) => this.shown.has(member)),
      'eviction-invalid',
    )
    this.reveals.push(reveal)
  }

  onBadRun(bad, entry) {
    const { reveal, header, run, row } = bad
    const { member } = reveal
    const dealer = header.member
    require_(this.isDue(reveal, entry) && this.receipts.has(member), 'share-invalid')
    c.asAny(() => c.checkHeader(header, this.context, this.facts), 'share-invalid')
    const staying = m.idsOf(this.certificate.survivors).filter((id) => !reveal.evicted.includes(id))
    const runs = staying.filter((id) => id === member || this.receipts.get(member).dealers.includes(id))
    const due = this.facts.due(dealer, staying)
    const leads =
      bad.count === runs.length &&
      runs[bad.place] === dealer &&
      pathHolds(reveal.runs_root, run, bad.place, bad.count, bad.run_path) &&
      this.facts.rowLeads(header, member, row, bad.row_path)
    require_(c.certifies(this.certificate, header) && leads && run.length === 36 * due.length, 'share-invalid')
    const shareOf = (i) => run.subarray(36 * i, 36 * i + 36)
    const holds = due.every((index, i) => this.facts.isShareCommitted(this.context, dealer, member, index, shareOf(i), row))
    require_(!holds, 'share-invalid')
    this.find(entry, 'share-invalid', member)
  }

  onEvictions(evictions, entry) {
    require_(same(evictions.context, this.context), 'wrong-context')
    const named = m.idsOf(evictions.proofs.map((proof) => proof.header))
    for (const member of named) this.shown.add(member)
    require_(named.length > this.evicted.length && this.certificate, 'eviction-invalid')
    const evicted = c.checkEvictions(evictions, this.certificate, this.facts, this.evicted)
    for (const dealer of evicted) if (!this.evicted.includes(dealer)) this.find(entry, 'dealer-inconsistent', dealer)
    this.evicted = evicted
  }

  onErased(report, entry) {
    this.requireAnswer('Erased', report)
    if (this.contradicts(this.reports, report, (one) => hex(one.revealed), entry, 'conflict')) return
    this.requireStage(...UNCERTIFIED, 'revealing', 'erasing')
    this.stage = 'erasing'
    if (!this.reports.has(report.member)) this.reports.set(report.member, { entry, ...report })
  }

  onErasure(erasure) {
    this.stage = 'closed'
    c.checkErasure(erasure, this.context, this.facts)
    Object.assign(this, { ended: true, replaced: true })
    require_(
      erasure.reports.every((report) => this.reports.has(report.member)),
      'erasure-invalid',
    )
  }

  onLost(lost) {
    c.checkLost(lost, this.context, this.facts)
    Object.assign(this, { stage: 'closed', ended: true, replaced: true })
  }

  /** What only the whole transcript shows. */
  close(signed) {
    if (this.receipts.size && !this.proposal) {
      try {
        this.findDisputes()
      } catch (error) {
        if (!(error instanceof Fault)) throw error
        this.find(null, error.cause)
      }
    }
    for (const [entry, { member, outcome }] of this.unasked)
      if (!this.certificate || !same(outcome, this.outcome)) this.find(entry, 'survivors-invalid', member, COORDINATOR)
    const refusals = []
    for (const refusal of this.refused.values()) {
      const { entry, member, cause } = refusal
      const follows = this.follows(refusal)
      if (follows === null) refusals.push([member, cause])
      else if (!follows) this.find(entry, cause, member, COORDINATOR)
    }
    for (const { entry, member, revealed } of this.reports.values())
      if (same(revealed, ZERO) && this.reveals.some((one) => one.member === member)) this.find(entry, 'conflict', member)
    if (!this.ended) this.find(null, 'outcome-missing')
    if (!signed) this.find(null, 'bad-signature')
    const { findings, evicted } = this
    return { findings, refusals, evicted, counted: signed ? this.counted() : [] }
  }

  /** Those certified with the header that they announced, if enough decryptors revealed for everyone who stays. */
  counted() {
    if (this.replaced || this.certificate?.reason !== 'none') return []
    const staying = this.certificate.survivors.filter(({ member }) => !this.evicted.includes(member))
    const reveals = this.reveals.filter((reveal) => reveal.evicted.join() === this.evicted.join())
    const covers = (decryptor, dealer) =>
      this.receipts.has(decryptor) && (decryptor === dealer || this.receipts.get(decryptor).dealers.includes(dealer))
    const enough = ({ member: dealer }) =>
      new Set(m.idsOf(reveals.filter((one) => covers(one.member, dealer)))).size >= this.facts.manifest.t
    return staying.every(enough) ? m.idsOf(staying.filter(this.announced)) : []
  }
}
