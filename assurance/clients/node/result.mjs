/** What a member holds a result's record against (analysis: Results). */
import { cover } from './disputes.mjs'
import { COORDINATOR, H, ZERO, canonical, hex, require_, same, unhex } from './encoding.mjs'
import { verify } from './keys.mjs'
import * as m from './messages.mjs'
import { muOf } from './noise.mjs'
import { RECIPES } from './study.mjs'

/** Check a record (RESULT-1 to RESULT-7). `held`: facts, opening, certificate, evicted (proofs that the member was shown), holders, reached (or null). */
export function checkRecord(record, held) {
  const { facts, opening, certificate, evicted } = held
  const { study, manifest } = facts
  const need = (holds) => require_(holds, 'result-mismatch', COORDINATOR)
  need(certificate.reason === 'none' && !['count', 'rows'].includes(opening.terms.step))
  const { signature, ...body } = record
  const signed = verify(facts.roster.coordinator, H('result', Buffer.from(canonical(body))), unhex(signature))
  require_(signed, 'bad-signature', COORDINATOR)
  const { context, terms_hash: terms } = m.contextOf(facts.federation, manifest, opening)
  const wanted = {
    format: 'veilsum-result/5',
    round: hex(context).slice(0, 16),
    context: hex(context),
    federation: hex(facts.federation),
    study: hex(study.hash),
    name: study.content.notes.name,
    version: study.content.notes.version,
    period: manifest.period,
    step: opening.terms.step,
    cohort: hex(manifest.cohort),
    terms: hex(terms),
    survivors_hash: hex(m.survivorsHash(context, certificate.survivors)),
  }
  for (const [name, value] of Object.entries(wanted)) need(record[name] === value)
  need(
    canonical(record.survivors) ===
      canonical(certificate.survivors.map((one) => ({ member: one.member, digest: hex(one.digest) }))),
  )
  const survivors = new Set(m.idsOf(certificate.survivors))
  need(record.dropped.join() === cover(context, record.disputes, study.a).join())
  need(!record.dropped.some((member) => survivors.has(member)))
  need(record.evicted.join() === evicted.join())
  need(record.withheld.join() === opening.terms.withheld.join())
  const rests = !same(opening.terms.count, ZERO)
  need(record.holders.join() === (rests ? held.holders : []).join() && record.reached.join() === (held.reached ?? []).join())
  const counts = opening.links.filter(
    (link) => ['count', 'rows'].includes(link.step) && link.reason === 'none' && same(link.question, study.question),
  )
  need(record.counts.join() === counts.map((link) => hex(link.context)).join())
  need(Number.isSafeInteger(record.rows) && record.rows >= 0 && record.rows <= study.q.records.most * study.q.members_max)
  need((record.noise !== null) === study.noisy)
  if (study.noisy) {
    const { epsilon, delta, recipe } = study.q.noise
    const mu = muOf(epsilon, delta) * Math.sqrt(RECIPES[recipe][record.step])
    need(
      record.noise.delta === delta &&
        Math.abs(record.noise.mu - mu) <= 1e-9 * mu &&
        record.noise.study_epsilon <= epsilon * (1 + 1e-9),
    )
  }
}

/** Check what an audit of a round's transcript found (RESULT-9). `record`: null of a count. */
export function checkTranscript({ context, head, signed, findings }, held, record) {
  const own = same(context, held.certificate.context) && (!record || hex(head) === record.transcript)
  require_(own && signed, 'result-mismatch', COORDINATOR)
  const broken = findings.find(({ parties }) => parties.join() === COORDINATOR)
  require_(!broken, broken?.cause, COORDINATOR)
}
