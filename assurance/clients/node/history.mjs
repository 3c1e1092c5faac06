/** What a member remembers of attempts: how they ended, and what an opening may say of them (wire: Openings). */
import { COORDINATOR, ZERO, hex, require_, same } from './encoding.mjs'
import * as m from './messages.mjs'

/** An attempt's link, without its end. */
export const linkOf = ({ study, manifest }, { sequence, attempt, terms }, context) => ({
  cohort: manifest.cohort,
  sequence,
  attempt,
  question: study.question,
  period: manifest.period,
  step: terms.step,
  repeats: manifest.repeats,
  context,
})
/** The link that a certificate gives an attempt. */
export const linkWith = (attempt, certificate) => ({
  ...attempt.link,
  reason: certificate.reason,
  survivors: certificate.reason === 'none' ? m.survivorsHash(attempt.link.context, certificate.survivors) : ZERO,
})
export const sameLink = (a, b) => same(m.fieldsOf('Link', a), m.fieldsOf('Link', b))

/** Keep the first end of an attempt that comes without a certificate: `erased` or `lost`. */
export const closeBy = (reason, attempt) => (attempt.end ??= { ...attempt.link, reason, survivors: ZERO })

/** How an attempt ended as far as the member knows, or will have, once a link says so; null without a closing. */
const settledOf = (attempt) => attempt.end ?? (attempt.certificate && linkWith(attempt, m.decode(attempt.certificate)))

/** Take a link `none` as the end of an attempt whose certificate the member holds (wire: Ends). */
export function acceptEnds(opening, state) {
  for (const attempt of state.attempts.values()) {
    const settled = settledOf(attempt)
    if (settled && opening.links.some((link) => sameLink(link, settled))) attempt.end = settled
  }
}

/** OPEN-8 to OPEN-11. An attempt that is open is not among those that must have ended. */
export function checkHistory(opening, state, open = null) {
  const linked = new Map(opening.links.map((link) => [hex(link.context), link]))
  const attempts = [...state.attempts].filter(([context]) => !open || context !== hex(open.context)).map(([, attempt]) => attempt)
  const known = attempts.flatMap((attempt) => {
    const settled = settledOf(attempt)
    require_(settled || !attempt.tookPart, 'outcome-missing', COORDINATOR)
    return settled ? [[settled, linked.get(hex(settled.context))]] : []
  })
  if (!open) state.history.forEach((link, i) => require_(opening.links[i] && sameLink(link, opening.links[i]), 'chain-broken'))
  for (const [settled, link] of known)
    if (settled.reason === 'none') require_(link && sameLink(link, settled), 'outcome-missing', COORDINATOR)
  for (const [settled, link] of known)
    if (settled.reason !== 'none') require_(!link || sameLink(link, settled), 'chain-broken', COORDINATOR)
}

/** Known ends that an opening leaves out (OPEN-14). */
export function endsLeftOut(opening, state) {
  const linked = new Set(opening.links.map((link) => hex(link.context)))
  return [...state.attempts.values()].flatMap(({ end }) => (end && !linked.has(hex(end.context)) ? [end] : []))
}

/** Links of an opening that this folder should know if its card's cohort formed with it: it may have forgotten them (RESTORE-3). */
export const unknownSums = (opening, state) =>
  opening.links
    .slice(state.history.length)
    .filter((link) => link.reason === 'none' && !state.attempts.has(hex(link.context)) && state.cohorts.has(hex(link.cohort)))

const MAY_DIFFER = ['extractor', 'dim', 'columns', 'statistics', 'ring_bits']

/** OPEN-21: the repeated attempt's evidence, and two questions that differ in no more than they may. */
export function checkRepeat({ study, manifest }, state) {
  const repeated = state.attempts.get(hex(manifest.repeats))
  require_(repeated?.certificate, 'repeat-mismatch', COORDINATOR)
  const [old, now] = [repeated.content.question, study.q]
  const kinds = (q) => ['ccvr', 'random-features'].map((kind) => q.statistics.some((one) => one.kind === kind)).join()
  const free = old.extractor === now.extractor ? [] : MAY_DIFFER
  const equal = Object.keys(now).every((name) => free.includes(name) || JSON.stringify(old[name]) === JSON.stringify(now[name]))
  require_(equal && kinds(old) === kinds(now), 'repeat-mismatch', COORDINATOR)
}

/** OPEN-22 to OPEN-24, for `member`. */
export function checkCounts({ terms }, { study, manifest, repeats }, state, member) {
  const need = (holds) => require_(holds, 'count-mismatch', COORDINATOR)
  if (repeats) {
    const repeated = state.attempts.get(hex(manifest.repeats)).terms
    const ofCounts = ({ count, rows, withheld, evicted }) => [hex(count), hex(rows), withheld.join(), evicted.join()].join(' ')
    need(ofCounts(terms) === ofCounts(repeated))
  }
  if (same(terms.count, ZERO)) return
  const rests = [terms.count, terms.rows].filter((context) => !same(context, ZERO)).map(hex)
  for (const context of rests) {
    const { certificate, evicted } = state.attempts.get(context) ?? {}
    need(certificate && state.sums.has(context) && !evicted.includes(member))
    need(m.decode(certificate).survivors.some((one) => one.member === member))
  }
  const [count, rows] = rests.map((context) => state.attempts.get(context))
  const [holders, reached = null] = rests.map((context) => state.sums.get(context))
  if (rows) need(same(rows.terms.count, terms.count))
  const evicted = [...new Set([...count.evicted, ...(rows?.evicted ?? [])])].sort()
  need(study.withheldBy(holders).join() === terms.withheld.join() && evicted.join() === terms.evicted.join())
  need(study.goesOn(holders, reached))
  if (repeats) need(holders.every((held, place) => terms.withheld.includes(place) || held >= study.leastHolders))
}
