/** Whom disputes cost their place (wire: Survivors). The names are the pseudocode's. */
import { H } from './encoding.mjs'

/** A graph of disputes: each member with its neighbours, in rank order. */
function graphOf(edges, rank) {
  const members = [...new Set(edges.flat())].sort((a, b) => rank.get(a) - rank.get(b))
  const graph = new Map(members.map((member) => [member, new Set()]))
  for (const [u, v] of edges) {
    graph.get(u).add(v)
    graph.get(v).add(u)
  }
  return graph
}

const inOrder = (rank, members) => [...members].sort((a, b) => rank.get(a) - rank.get(b))

function matching(graph, rank) {
  const taken = new Set()
  const found = []
  for (const member of graph.keys()) {
    if (taken.has(member)) continue
    const partner = inOrder(rank, graph.get(member)).find((other) => !taken.has(other))
    if (partner === undefined) continue
    taken.add(member).add(partner)
    found.push([member, partner])
  }
  return found
}

const edgesWithout = (edges, gone) => edges.filter(([u, v]) => !gone.has(u) && !gone.has(v))

function components(edges, rank) {
  const graph = graphOf(edges, rank)
  const seen = new Set()
  const found = []
  for (const start of graph.keys()) {
    if (seen.has(start)) continue
    const reached = new Set([start])
    for (const member of reached) graph.get(member).forEach((other) => reached.add(other))
    reached.forEach((member) => seen.add(member))
    found.push(edges.filter(([u]) => reached.has(u)))
  }
  return found
}

function search(edges, bound, limit, rank, firstOnly) {
  let best = null
  const stack = [new Set()]
  while (stack.length) {
    const gone = new Set(stack.pop())
    let graph = graphOf(edgesWithout(edges, gone), rank)
    for (let leaf; (leaf = [...graph].find(([, near]) => near.size === 1)); graph = graphOf(edgesWithout(edges, gone), rank))
      gone.add([...leaf[1]][0])
    if (gone.size + matching(graph, rank).length >= bound) continue
    if (graph.size === 0) {
      best = gone
      bound = gone.size
      if (firstOnly) return { best, complete: true }
      continue
    }
    if (limit === 0) return { best, complete: false }
    limit--
    let widest = null
    for (const [member, near] of graph) if (widest === null || near.size > graph.get(widest).size) widest = member
    stack.push(new Set([...gone, ...graph.get(widest)]), new Set([...gone, widest]))
  }
  return { best, complete: true }
}

function least(edges, liars, limit, rank) {
  const graph = graphOf(edges, rank)
  const whole = new Set(graph.keys())
  const first = search(edges, whole.size, limit, rank, true).best ?? whole
  let { best, complete } = search(edges, Math.min(first.size, liars + 1), limit, rank, false)
  if (complete && !best) ({ best, complete } = search(edges, first.size, limit, rank, false))
  best ??= first
  const ends = new Set(matching(graph, rank).flat())
  return complete || best.size < ends.size ? best : ends
}

/** The members dropped for `disputes`, ascending. Each dispute has a cause and two parties. */
export function cover(context, disputes, a) {
  const members = [...new Set(disputes.flatMap((dispute) => dispute.parties))]
  const ranked = members.map((member) => [H('priority', context, member), member]).sort((x, y) => Buffer.compare(x[0], y[0]))
  const rank = new Map(ranked.map(([, member], place) => [member, place]))
  const pairs = new Map(disputes.map(({ parties }) => [[...parties].sort().join(' '), [...parties].sort()]))
  const degrees = graphOf([...pairs.values()], rank)
  const dropped = new Set([...degrees].filter(([, near]) => near.size > a).map(([member]) => member))
  const edges = edgesWithout([...pairs.values()], dropped)
  const limit = Math.floor(1000000 / Math.max(edges.length, 1))
  const parts = components(edges, rank)
  const matched = parts.map((part) => matching(graphOf(part, rank), rank).length)
  const spare = a - dropped.size - matched.reduce((sum, size) => sum + size, 0)
  parts.forEach((part, i) => {
    const own = disputes.filter(({ parties }) => parties.every((party) => part.flat().includes(party)))
    if (own.length === 1 && own[0].cause === 'box-refused') dropped.add(own[0].parties[0])
    else least(part, matched[i] + spare, limit, rank).forEach((member) => dropped.add(member))
  })
  return [...dropped].sort()
}
