/** The auditor: replay a transcript, and name who broke which rule (protocol §11). */
import * as c from './checks.mjs'
import { cover } from './disputes.mjs'
import { Fault, H, ZERO, hex, pathHolds, require_, same } from './encoding.mjs'
import { commitShare, verify } from './keys.mjs'
import * as m from './messages.mjs'

const COORDINATOR = 'coordinator'
const JUDGED = [
  'survivors-too-few',
  'survivors-invalid',
  'window-exceeded',
  'malformed',
  'count-mismatch',
  'repeat-mismatch',
  'own-upload-changed',
]

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
  const signed = verify(roster.coordinator, H('transcript', context, head), signature)
  if (!signed)
    return {
      context,
      head,
      signed,
      findings: [{ entry: null, parties: [COORDINATOR], cause: 'bad-signature' }],
      refusals: [],
      evicted: [],
      counted: [],
    }
  const replay = new Replay(facts, opening, context, entries)
  entries.slice(4).forEach((bytes, i) => replay.take(bytes, i + 4))
  return { context, head, signed, ...replay.close() }
}

class Replay {
  constructor(facts, opening, context, entries) {
    Object.assign(this, { facts, opening, context, entries, step: opening.terms.step })
    this.findings = []
    this.refusals = []
    this.seen = new Set()
    this.phase = 'collecting'
    this.uploads = new Map()
    this.receipts = new Map()
    this.votes = new Map()
    this.asked = new Set()
    this.proposal = null
    this.certificate = null
    this.hadCertificate = false
    this.reveals = []
    this.reports = new Map()
    this.evicted = []
    this.ended = false
    this.certified = this.#certifiedOutcomes(entries)
  }

  /** Outcomes that certificates of this transcript spell out: votes on them need no proposal. */
  #certifiedOutcomes(entries) {
    const outcomes = new Set()
    for (const bytes of entries.slice(4)) {
      if (bytes[1] !== 12) continue
      try {
        const { survivors, reason } = m.decode(bytes, 'Certificate')
        outcomes.add(hex(reason === 'none' ? m.survivorsHash(this.context, survivors) : m.voidHash(this.context, reason)))
      } catch (error) {
        if (!(error instanceof Fault)) throw error
      }
    }
    return outcomes
  }

  find(entry, cause, ...parties) {
    this.findings.push({ entry, parties: parties.length ? parties : [COORDINATOR], cause })
  }

  take(bytes, entry) {
    const known = this.findings.length
    try {
      let message
      try {
        message = m.decode(bytes)
      } catch {
        throw new Fault('unknown-message')
      }
      const handler = this[`on${message.type}`]
      require_(handler, 'unknown-message')
      require_(!this.seen.has(hex(bytes)), 'duplicate')
      handler.call(this, message, entry)
      if (this.findings.length === known) this.seen.add(hex(bytes))
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      this.find(entry, error.cause)
    }
  }

  /** What each answer must be before it is looked at: of this context, by a decryptor, signed. */
  requireAnswer(name, message) {
    require_(same(message.context, this.context), 'wrong-context')
    require_(this.facts.position(message.member) >= 0, 'not-a-decryptor')
    require_(this.facts.signed(name, message, message.member), 'bad-signature')
  }

  in = (...phases) => require_(phases.includes(this.phase), 'wrong-phase')

  onUploadSummary({ header, commitments, path }, entry) {
    const { member } = header
    require_(same(header.context, this.context), 'wrong-context')
    require_(this.facts.isMember(member), 'unknown-member')
    require_(this.facts.signed('Header', header, member), 'bad-signature')
    const before = this.uploads.get(member)
    if (before) {
      require_(!same(before.digest, m.uploadDigest(header)), 'duplicate')
      return this.find(entry, 'upload-conflict', member)
    }
    require_(this.facts.commitmentsLead(header, Buffer.concat(commitments), path), 'upload-misshapen')
    this.in('collecting')
    this.uploads.set(member, { header, digest: m.uploadDigest(header), commitments })
  }

  onReceipt(receipt, entry) {
    this.requireAnswer('Receipt', receipt)
    const { member } = receipt
    const before = this.receipts.get(member)
    if (before) return this.find(entry, 'conflict', member)
    this.in('collecting', 'checking', 'freezing', 'revealing')
    const dealers = [...receipt.dealers, ...receipt.complaints].sort()
    require_(
      dealers.every((dealer) => this.uploads.has(dealer) && dealer !== member),
      'malformed',
    )
    const digests = dealers.map((dealer) => this.uploads.get(dealer).digest)
    require_(same(receipt.uploads, c.deliveriesHash(this.context, digests)), 'malformed')
    this.receipts.set(member, receipt)
    for (const dealer of receipt.complaints) this.find(entry, 'box-refused', dealer, member)
    if (this.phase === 'collecting') {
      this.phase = 'checking'
      for (const { parties, cause } of this.edges()) this.find(entry, cause, ...parties)
    }
  }

  /** Pairs that committed to different masks. */
  edges() {
    const found = []
    for (const [u, upload] of this.uploads) {
      this.facts.neighbours(u).forEach((v, i) => {
        const other = u < v && this.uploads.get(v)
        if (!other) return
        const back = other.commitments[1 + this.facts.neighbours(v).indexOf(u)]
        if (!same(upload.commitments[1 + i], back)) found.push({ cause: 'edge-disagreement', parties: [u, v] })
      })
    }
    return found
  }

  /** The survivors of §4.5, from the receipts so far. `counted`: members that the steps before counted, or null. */
  survivors(counted) {
    const { t, a_D } = this.facts.manifest
    const { a } = this.facts.study
    const clean = new Map([...this.uploads.keys()].map((dealer) => [dealer, 0]))
    for (const { member, dealers } of this.receipts.values())
      for (const dealer of [member, ...dealers]) if (clean.has(dealer)) clean.set(dealer, clean.get(dealer) + 1)
    const stays = (member) => clean.get(member) >= t && (!counted || counted.includes(member))
    const complaints = [...this.receipts.values()].flatMap(({ member, complaints: about }) =>
      about
        .filter((dealer) => clean.get(dealer) < t + a_D)
        .map((dealer) => ({ cause: 'box-refused', parties: [dealer, member] })),
    )
    const disputes = [...this.edges(), ...complaints]
    const all = [...this.uploads.keys()].sort()
    const dropping = (some, from) => {
      const dropped = cover(this.context, some, a)
      return from.filter((member) => stays(member) && !dropped.includes(member))
    }
    const first = dropping(disputes, all)
    if (!disputes.length || this.mayPropose(first, counted)) return first
    const staying = all.filter(stays)
    return dropping(
      disputes.filter(({ parties }) => parties.every((party) => staying.includes(party))),
      staying,
    )
  }

  mayPropose(survivors, counted) {
    const missing = counted ? counted.filter((member) => !survivors.includes(member)).length : 0
    return (
      survivors.length >= this.facts.leastOf(this.step) &&
      !this.facts.windowExceeded(survivors) &&
      missing <= this.facts.study.margin
    )
  }

  onFreeze(freeze) {
    this.in('checking', 'freezing')
    this.phase = 'freezing'
    const survivors = freeze.headers.map((header) => ({ member: header.member, digest: m.uploadDigest(header) }))
    require_(same(freeze.context, this.context), 'wrong-context')
    const outcome = m.survivorsHash(this.context, survivors)
    this.asked.add(hex(outcome))
    this.proposal = { freeze, survivors, outcome }
    this.checkProposal(this.proposal)
    const { evicted } = this.opening.terms
    const sets = freeze.earlier.map((set) => set.survivors.map((one) => one.member).filter((member) => !evicted.includes(member)))
    const counted =
      sets.length && !this.facts.repeats ? sets[0].filter((member) => sets.every((set) => set.includes(member))) : null
    const wanted = this.survivors(counted)
    require_(wanted.join() === survivors.map((one) => one.member).join(), 'survivors-invalid')
    require_(
      survivors.every(({ member, digest }) => same(digest, this.uploads.get(member).digest)),
      'survivors-invalid',
    )
  }

  checkProposal({ freeze, survivors }) {
    const ids = survivors.map((one) => one.member)
    require_(
      ids.every((member) => this.uploads.has(member)),
      'survivors-invalid',
    )
    c.checkSurvivors(ids, this.facts, this.step)
    require_(!this.facts.windowExceeded(ids), 'window-exceeded')
    c.checkEarlier(freeze.earlier, ids, this.opening, this.facts)
  }

  onVoidRequest(request) {
    require_(same(request.context, this.context), 'wrong-context')
    this.in('collecting', 'checking', 'freezing', 'voiding')
    this.phase = 'voiding'
    this.asked.add(hex(m.voidHash(this.context, request.reason)))
  }

  onVote(vote, entry) {
    this.requireAnswer('Vote', vote)
    const before = this.votes.get(vote.member)
    if (before)
      return same(before.outcome, vote.outcome) ? this.find(entry, 'duplicate') : this.find(entry, 'already-voted', vote.member)
    require_(['freezing', 'voiding', 'erasing'].includes(this.phase), 'wrong-phase')
    this.votes.set(vote.member, vote)
    const outcome = hex(vote.outcome)
    if (!this.asked.has(outcome) && !this.certified.has(outcome)) this.find(entry, 'survivors-invalid', vote.member, COORDINATOR)
  }

  onRefusal(refusal, entry) {
    this.requireAnswer('Refusal', refusal)
    this.in('freezing')
    if (!JUDGED.includes(refusal.cause)) return this.refusals.push([refusal.member, refusal.cause])
    let cause = null
    try {
      this.checkProposal(this.proposal)
    } catch (error) {
      cause = error.cause
    }
    if (cause !== refusal.cause) this.find(entry, refusal.cause, refusal.member, COORDINATOR)
  }

  onCertificate(certificate, entry) {
    require_(this.asked.size || this.phase === 'freezing', 'wrong-phase')
    this.hadCertificate = true
    const outcome = c.checkCertificate(certificate, this.context, this.facts, this.step)
    if (this.certificate) return this.find(entry, 'certificate-invalid')
    this.certificate = certificate
    this.outcome = outcome
    this.ended = true
    this.phase = certificate.reason === 'none' ? 'revealing' : 'voided'
    const admitted = certificate.votes.every(
      (vote) => this.votes.has(vote.member) && same(this.votes.get(vote.member).outcome, outcome),
    )
    if (!admitted) return this.find(entry, 'certificate-invalid')
    if (!this.asked.has(hex(outcome))) this.find(entry, 'survivors-invalid')
  }

  /** Checks of a reveal that hold for its summary, also in a BadRun. */
  requireReveal(reveal) {
    this.requireAnswer('RevealSummary', reveal)
    if (!this.certificate) require_(!this.hadCertificate, 'certificate-invalid')
    require_(this.certificate?.reason === 'none', 'wrong-phase')
  }

  onRevealSummary(reveal, entry) {
    this.requireReveal(reveal)
    if (!same(reveal.outcome, this.outcome)) return this.find(entry, 'reveal-misshapen', reveal.member)
    this.in('revealing')
    this.reveals.push(reveal)
  }

  onBadRun(bad, entry) {
    const { reveal, header, run, row } = bad
    this.requireReveal(reveal)
    const { member } = reveal
    const dealer = header.member
    const receipt = this.receipts.get(member)
    const covered = receipt && (dealer === member || receipt.dealers.includes(dealer))
    const announced = this.uploads.has(dealer) && same(this.uploads.get(dealer).digest, m.uploadDigest(header))
    const leads =
      pathHolds(reveal.runs_root, run, bad.place, bad.count, bad.run_path) &&
      this.facts.rowLeads(header, member, row, bad.row_path)
    require_(covered && announced && leads, 'share-invalid')
    const staying = this.certificate.survivors.map((one) => one.member).filter((id) => !reveal.evicted.includes(id))
    const due = this.facts.due(dealer, staying)
    const holds =
      run.length === 36 * due.length &&
      due.every((index, i) =>
        same(
          commitShare(this.context, dealer, member, index, run.subarray(36 * i, 36 * i + 36)),
          row.subarray(16 * index, 16 * index + 16),
        ),
      )
    require_(!holds, 'share-invalid')
    this.find(entry, 'share-invalid', member)
  }

  onEvictions(evictions, entry) {
    require_(this.certificate?.reason === 'none', 'wrong-phase')
    const evicted = c.checkEvictions(evictions, this.certificate, this.facts, this.evicted)
    for (const dealer of evicted) if (!this.evicted.includes(dealer)) this.find(entry, 'dealer-inconsistent', dealer)
    this.evicted = evicted
  }

  onErased(report, entry) {
    this.requireAnswer('Erased', report)
    const before = this.reports.get(report.member)
    const denies = same(report.revealed, ZERO) && this.reveals.some((reveal) => reveal.member === report.member)
    if (denies || (before && !same(before.revealed, report.revealed))) return this.find(entry, 'conflict', report.member)
    require_(!['voided', 'lost'].includes(this.phase), 'wrong-phase')
    this.reports.set(report.member, report)
    this.phase = 'erasing'
  }

  onErasure(erasure) {
    this.in('erasing')
    c.checkErasure(erasure, this.context, this.facts)
    const admitted = erasure.reports.every((report) => this.reports.has(report.member))
    this.ended = true
    this.phase = 'voided'
    require_(admitted, 'erasure-invalid')
  }

  onLost(lost) {
    c.checkLost(lost, this.context, this.facts)
    this.ended = true
    this.phase = 'lost'
  }

  close() {
    if (!this.ended) this.find(null, 'outcome-missing')
    const { findings, refusals, evicted } = this
    return { findings, refusals, evicted, counted: this.counted() }
  }

  /** Those in the sum, if each has enough runs of decryptors whose receipt covers it. */
  counted() {
    if (this.phase !== 'revealing') return []
    const staying = this.certificate.survivors.map((one) => one.member).filter((member) => !this.evicted.includes(member))
    const reveals = this.reveals.filter((reveal) => reveal.evicted.join() === this.evicted.join())
    const covers = (decryptor, dealer) =>
      decryptor === dealer ? this.receipts.has(decryptor) : this.receipts.get(decryptor)?.dealers.includes(dealer)
    const enough = (dealer) =>
      new Set(reveals.filter((one) => covers(one.member, dealer)).map((one) => one.member)).size >= this.facts.manifest.t
    return staying.every(enough) ? staying : []
  }
}
