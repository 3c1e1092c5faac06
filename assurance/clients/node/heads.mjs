/** A result's files: the head that its record names, and the sum that a reader solves for it (RESULT-8, RESULT-10). */
import { COORDINATOR, hex, require_, sha256 } from './encoding.mjs'
import { readTensors, rowsOf } from './safetensors.mjs'

const FORMS = { ffc: 'linear', ccvr: 'tukey', 'random-features': 'random-features' }
const RESIDUAL = 1e-10
const NUMBER_MAX = 1e150
const need = (holds) => require_(holds, 'result-mismatch', COORDINATOR)

function tensorsIn(file) {
  try {
    return readTensors(file)
  } catch {
    return need(false)
  }
}

/**
 * Check a head's file. `record`: its `digest` (null: none), `unanswered` (classes without rows) and `withheld`.
 * `centre`: that of the step's material, if it has one.
 */
export function checkHead(study, { digest, unanswered, withheld }, file, centre) {
  need(file && hex(sha256(file)) === digest)
  const { dim, classes, statistics, constant } = study.q
  const { tensors, metadata } = tensorsIn(file)
  const notes = JSON.parse(metadata['veilsum-head'] ?? '{}')
  const [{ kind, bandwidth }] = statistics
  const C = classes.length
  const { weights, bias } = tensors
  need(Object.values(tensors).every(({ values }) => values.every((value) => Math.abs(value) <= NUMBER_MAX)))
  need(
    weights && weights.shape.length === 2 && weights.shape[1] === C && (kind === 'random-features' || weights.shape[0] === dim),
  )
  need(notes.form?.kind === FORMS[kind] && notes.form.bandwidth === bandwidth)
  need(kind !== 'ffc' || Boolean(bias) === constant)
  need(!bias || bias.shape.join() === String(C))
  need((tensors.centre?.values ?? []).join() === (centre ?? []).join())
  need((notes.withheld ?? []).join() === withheld.join() && Boolean(notes.noise) === study.noisy)
  need(unanswered.every((c) => c < C) && unanswered.length < C)
  if (kind === 'ffc' && !study.noisy)
    for (const row of [...rowsOf(weights), ...(bias ? [bias.values] : [])]) need(unanswered.every((c) => row[c] === 0))
}

/** Whether a symmetric matrix has no eigenvalue below 0, by elimination. */
function isSemidefinite(matrix) {
  const rows = matrix.map((row) => row.slice())
  for (let k = 0; k < rows.length; k++) {
    if (rows[k][k] <= 0) return false
    for (let i = k + 1; i < rows.length; i++) {
      const factor = rows[i][k] / rows[k][k]
      for (let j = k + 1; j < rows.length; j++) rows[i][j] -= factor * rows[k][j]
    }
  }
  return true
}

const norm = (rows) => Math.sqrt(rows.flat().reduce((sum, value) => sum + value * value, 0))

/**
 * Check an exact sum of `ffc` alone: its identities, and that the head solves it. `sum` has its integers as numbers, of `members` vectors;
 * `record`: `rows` and `ridge` (λ).
 */
export function checkSum(study, sum, members, { rows, ridge }, file) {
  need(sum.length === study.length && ridge !== null)
  const [{ l }] = study.statistics
  const { constant, dim, classes } = study.q
  const C = classes.length
  const unit = 2 ** study.scale
  const slack = members / (2 * unit) + 1e-9 // what each member's rounding by ½ explains, and binary64's
  const exact = sum.map((value) => value / unit)
  const square = (l * (l + 1)) / 2
  const counts = exact.slice(square + l * C)
  need(counts.every((count) => Number.isInteger(count) && count >= 0))
  const all = counts.reduce((total, count) => total + count, 0)
  need(all === rows)
  const V = Array.from({ length: l }, () => Array(l).fill(0))
  for (let i = 0, at = 0; i < l; i++) for (let j = i; j < l; j++) V[i][j] = V[j][i] = exact[at++]
  const U = rowsOf({ shape: [l, C], values: exact.slice(square) })
  need(V.flat().every((value) => Math.abs(value) <= all + slack))
  need(U.every((row) => row.every((value, c) => Math.abs(value) <= counts[c] + slack)))
  if (constant) {
    const own = Math.sqrt(0.1)
    const near = (seen, wanted, roundings) => need(Math.abs(seen - wanted) <= roundings * slack)
    U[dim].forEach((value, c) => near(value, own * counts[c], 1))
    near(V[dim][dim], all / 10, 1)
    for (let j = 0; j < dim; j++) near(V[dim][j], own * U[j].reduce((total, value) => total + value, 0), 1 + C)
  }
  need(V.reduce((trace, row, i) => trace + row[i], 0) <= all + l * slack)
  const bordered = [
    ...V.map((row, i) => [...row, ...U[i]]),
    ...counts.map((count, c) => [...U.map((row) => row[c]), ...counts.map((_, d) => (c === d ? count : 0))]),
  ]
  need(isSemidefinite(bordered.map((row, i) => row.map((value, j) => (i === j ? value + (l + C) * slack : value)))))
  const { weights, bias } = tensorsIn(file).tensors
  const W = rowsOf(weights).map((row) => row.map((value) => (constant ? value / Math.sqrt(0.9) : value)))
  if (constant) W.push(bias.values.map((value) => value / Math.sqrt(0.1)))
  const left = V.map((row, i) =>
    U[i].map((_, c) => row.reduce((total, value, j) => total + value * W[j][c], ridge * W[i][c]) - U[i][c]),
  )
  need(norm(left) <= RESIDUAL * ((norm(V) + ridge) * norm(W) + norm(U)))
}
