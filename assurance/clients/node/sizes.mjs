/** Thresholds, committee, ring, windows, and who encapsulates to whom (analysis: Sizes; wire: Cohorts). */
import { H, require_ } from './encoding.mjs'

const EVERYONE = 200
const byRank = (tag, beacon, ids) =>
  ids
    .map((id) => [H(tag, beacon, id), id])
    .sort((a, b) => Buffer.compare(a[0], b[0]))
    .map(([, id]) => id)

/** By n: the last k, and how many choices it leaves. A search asks for one k after another. */
const chosen = new Map()

function choose(n, k) {
  let [at, result] = chosen.get(n) ?? [0, 1n]
  if (at > k) [at, result] = [0, 1n]
  for (; at < k; at++) result = (result * BigInt(n - at)) / BigInt(at + 1)
  chosen.set(n, [k, result])
  return result
}

/** The least `x` with `times · P[Hyp(n, marked, drawn) > x] ≤ 2^-bits`, in integers. */
function tail(n, marked, drawn, times, bits) {
  const limit = choose(n, drawn)
  let x = Math.min(marked, drawn)
  let term = choose(marked, x) * choose(n - marked, drawn - x)
  let above = 0n
  for (; x >= 0; x--) {
    if (((above + term) * BigInt(times)) << BigInt(bits) > limit) return x
    above += term
    const up = BigInt(x) * BigInt(n - marked - drawn + x)
    term = (term * up) / (BigInt(marked - x + 1) * BigInt(drawn - x + 1))
  }
  return 0
}

/** Size and colluders of a drawn committee; null where everyone decrypts. A committee has at most 1,000. */
function drawnCommittee(n, a, loss) {
  for (let size = 2; size < n && size <= 1000; size++) {
    const bad = tail(n, Math.min(a, n), size, 1, 80)
    const gone = tail(n, Math.floor((n * loss) / 1000), size, 1, 30)
    if (size >= bad + 2 * gone + 1) return { size, bad }
  }
  return null
}

/** Degree and dropouts of a window. */
function graph(n, a, loss) {
  const complete = { k: n - 1, D_max: 0 }
  if (n <= EVERYONE) return complete
  for (let half = 1; 2 * half < n - 1; half++) {
    const bad = tail(n, Math.min(a, n), half, n, 80)
    const dropped = tail(n, Math.floor((n * loss) / 1000), half, n, 20)
    if (half < bad + dropped + 1) continue
    return n <= 1000 && 6 * half > n - 1 ? complete : { k: 2 * half, D_max: dropped }
  }
  return complete
}

export const leastSurvivors = (N, a, h_min) => Math.max(a + h_min, Math.floor((N + a) / 2) + 1)

/**
 * The numbers of a cohort (analysis: Sizes). `rule`: a, h_min, loss, members_min, and of a withholding study `withheldMin(n_min)`.
 * `nominated`: nominees in the roster; `came`: those of them in the cohort.
 */
export function sizes(N, n, nominated, came, rule, repeats) {
  const { a, h_min, loss } = rule
  const n_min = repeats ? n : leastSurvivors(N, a, h_min)
  let committee = 'everyone'
  let L = n
  let a_D = a
  if (nominated) {
    committee = 'nominated'
    require_(a === 0 || nominated >= 4, 'cohort-too-small')
    L = came
    a_D = Math.min(a, Math.floor((nominated - 1) / 3))
  } else if (n > EVERYONE) {
    const drawn = drawnCommittee(n, a, loss)
    if (drawn) [committee, L, a_D] = ['drawn', drawn.size, drawn.bad]
  }
  const t = Math.floor((L + a_D) / 2) + 1
  const least = repeats ? 0 : Math.max(rule.members_min, rule.withheldMin?.(n_min) ?? 0)
  require_(L >= 2 && n >= least && n_min <= n && t <= L && L <= 1000, 'cohort-too-small')
  return { committee, decryptors: L, a_D, n_min, t, q: L + a_D - t + 1, ...graph(n, a, loss) }
}

/** The ring's order, or the ids' on the complete graph. */
export const ringOrder = (beacon, members) => byRank('ring', beacon, members)
export const drawCommittee = (beacon, members, size) => byRank('committee', beacon, members).slice(0, size).sort()

/** Neighbours N(u), ascending. */
export function neighbours(member, members, beacon, k) {
  if (k === members.length - 1) return members.filter((other) => other !== member)
  const order = ringOrder(beacon, members)
  const place = order.indexOf(member)
  const found = []
  for (let step = 1; step <= k / 2; step++) {
    for (const other of [place + step, place - step]) found.push(order[(other + order.length) % order.length])
  }
  return found.sort()
}

/** The dropouts in the first window with more than `limit` of them, ascending; null without one. */
export function windowExceeded(members, beacon, k, limit, lost) {
  if (k === members.length - 1) return null
  const order = ringOrder(beacon, members)
  const gone = new Set(lost)
  for (let start = 0; start < order.length; start++) {
    const window = Array.from({ length: k / 2 }, (_, step) => order[(start + step) % order.length])
    const dropped = window.filter((member) => gone.has(member))
    if (dropped.length > limit) return dropped.sort()
  }
  return null
}

/** Whom `member` encapsulates to, and who encapsulates to it, both ascending. */
export function pairs(member, members, beacon, k, decryptors) {
  const n = members.length
  const complete = k === n - 1
  const order = complete ? members : ringOrder(beacon, members)
  const place = new Map(order.map((id, index) => [id, index]))
  const reach = complete ? Math.floor((n - 1) / 2) : k / 2
  const decrypts = new Set(decryptors)
  const sends = (from, to) => {
    const distance = (place.get(to) - place.get(from) + n) % n
    if (distance <= reach) return true
    if (n - distance <= reach) return false
    if (complete || decrypts.has(from) === decrypts.has(to)) return from < to
    return decrypts.has(to)
  }
  const around = new Set(neighbours(member, members, beacon, k))
  const peers = members.filter((other) => other !== member && (around.has(other) || decrypts.has(member) || decrypts.has(other)))
  return { to: peers.filter((peer) => sends(member, peer)), from: peers.filter((peer) => sends(peer, member)) }
}
