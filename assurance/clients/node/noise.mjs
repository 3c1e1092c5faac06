/** Noisy steps (member: Noise): integer rows, blocks, sensitivity, and a member's share of the noise. */
import { randomBytes } from 'node:crypto'
import { require_ } from './encoding.mjs'
import { RECIPES } from './study.mjs'
import { constantRow, randomFeatures, rint, unit, upper } from './vectors.mjs'

const STEP = 4096
const FULL = STEP * STEP
const norm = (row) => Math.sqrt(row.reduce((sum, value) => sum + value * value, 0))
const firstUnit = (length) => Array.from({ length }, (_, i) => (i === 0 ? 1 : 0))

/** The integer row of `x`, shortened until its squares add up to `room` at most. */
function integerRow(x, room = FULL) {
  const exact = x.map((value) => STEP * value)
  const row = exact.map((value) => rint(value) + 0)
  const shortened = new Set()
  const total = () => row.reduce((sum, value) => sum + value * value, 0)
  for (let sum = total(); sum > room; sum = total()) {
    const away = row.flatMap((value, i) => (Math.abs(value) > Math.abs(exact[i]) && !shortened.has(i) ? [i] : []))
    const from = away.length ? away : row.map((_, i) => i)
    const place = from.reduce((best, i) => (Math.abs(row[i]) > Math.abs(row[best]) ? i : best))
    row[place] -= Math.sign(row[place])
    shortened.add(place)
  }
  return row
}

const withConstant = (x, constant) => [...integerRow(x, FULL - constant * constant), constant]

/** z of a row under the material's centre. */
function centredRow(row, centre) {
  const z = unit(row)
  if (!centre) return z
  const moved = z.map((value, i) => value - centre[i])
  const length = norm(moved)
  return length ? moved.map((value) => value / length) : firstUnit(z.length)
}

/** φ(z), z itself, or z with a constant: the row of `sum`, as reals and as integers. */
function sumRow(study, statistic, z) {
  if (statistic.kind === 'random-features') {
    const [x] = randomFeatures(study, statistic, [z])
    return [x, integerRow(x)]
  }
  if (statistic.kind === 'ffc' && study.q.constant) {
    const x = constantRow(z)
    return [x, withConstant(x.slice(0, -1), Math.floor(STEP * Math.sqrt(0.1)))]
  }
  return [z, integerRow(z)]
}

function gradientRow(study, statistic, z, label, material) {
  const [row] = sumRow(study, statistic, z)
  const product = material.whitening.map((line) => line.reduce((sum, value, j) => sum + value * row[j], 0))
  const length = norm(product)
  const x = length ? product.map((value) => value / length) : firstUnit(row.length)
  const scores = material.weights[0].map((_, c) => x.reduce((sum, value, i) => sum + value * material.weights[i][c], 0))
  const top = Math.max(...scores)
  const powers = scores.map((score) => Math.exp(score - top))
  const all = powers.reduce((sum, power) => sum + power, 0)
  const res = powers.map((power, c) => power / all - (c === label ? 1 : 0))
  const scale = Math.max(0.25, norm(res))
  return [integerRow(x), integerRow(res.map((value) => value / scale))]
}

const byClass = (rows, labels, C) => Array.from({ length: C }, (_, c) => rows.filter((_, i) => labels[i] === c))
const columns = (rows, l) => Array.from({ length: l }, (_, i) => rows.reduce((sum, row) => sum + row[i], 0))
const triangular = (l) => Array.from({ length: l }, (_, i) => Array.from({ length: l - i }, (_, j) => j === 0)).flat()

/** The blocks of a step: values, degree, weight, and which elements stand on a diagonal (null: no triangle). */
function blocks(study, step, rows, labels, material) {
  const [statistic] = study.statistics
  const { dim, classes } = study.q
  const { l } = statistic
  const C = classes.length
  const weight = C > 20 ? 2 : 1
  if (step === 'mean') {
    const integers = rows.map((row) =>
      withConstant(
        unit(row).map((value) => value / Math.SQRT2),
        Math.floor(STEP / Math.SQRT2),
      ),
    )
    return [{ values: columns(integers, dim + 1), degree: 1, weight: 1 }]
  }
  const z = rows.map((row) => centredRow(row, material.centre))
  if (step.startsWith('gradient-')) {
    const parts = z.map((row, i) => gradientRow(study, statistic, row, labels[i], material))
    const values = Array.from({ length: l * C }, (_, at) =>
      parts.reduce((sum, [x, rho]) => sum + x[Math.floor(at / C)] * rho[at % C], 0),
    )
    return [{ values, degree: 2, weight: 1 }]
  }
  const integers = z.map((row) => sumRow(study, statistic, row)[1])
  const classRows = byClass(integers, labels, C)
  if (statistic.kind === 'ccvr') {
    return [
      { values: classRows.map((own) => own.length * FULL), degree: 2, weight: 0.5 },
      { values: classRows.flatMap((own) => columns(own, l)), degree: 1, weight },
      ...classRows.map((own) => ({ values: upper(own, l), degree: 2, weight: 1, diagonal: triangular(l) })),
    ]
  }
  const sums = classRows.map((own) => columns(own, l))
  return [
    { values: upper(integers, l), degree: 2, weight: 1, diagonal: triangular(l) },
    { values: Array.from({ length: l }, (_, i) => sums.map((sum) => sum[i])).flat(), degree: 1, weight },
  ]
}

function sensitivity(study, step) {
  const { noise, records, classes } = study.q
  const weight = classes.length > 20 ? 2 : 1
  const rest = study.statistics[0].kind === 'ccvr' ? 0.25 : 0
  const one = step === 'sum' ? Math.sqrt(1 + weight * weight + rest) : 1
  return (noise.unit === 'member' ? records.most : records.rows_per_id) * one
}

/** The vector of a noisy step before noise. */
export function plainNoisyVector(study, step, rows, labels, material) {
  const { noise, records } = study.q
  const parts = blocks(study, step, rows, labels, material)
  let values = parts.flatMap((block) => block.values)
  if (noise.unit === 'member') {
    const lengths = parts.flatMap(({ values: own, degree, weight, diagonal }) =>
      own.map((value, i) => ((weight * value) / STEP ** degree) ** 2 * (diagonal && !diagonal[i] ? 2 : 1)),
    )
    const length = Math.sqrt(lengths.reduce((sum, square) => sum + square, 0))
    const limit = sensitivity(study, step)
    if (length > limit) values = values.map((value) => Math.trunc(value * (limit / length)) + 0)
  }
  const most = records.most * FULL
  return values.map((value) => Math.max(-most, Math.min(most, value)))
}

/** Φ to full precision, by the continued fraction or the series of erfc. */
function Phi(x) {
  const t = Math.abs(x) / Math.SQRT2
  let erfc
  if (t < 2.5) {
    let term = t
    let sum = t
    for (let n = 1; n < 200; n++) {
      term *= (-t * t) / n
      sum += term / (2 * n + 1)
    }
    erfc = 1 - (2 / Math.sqrt(Math.PI)) * sum
  } else {
    let fraction = 0
    for (let n = 120; n > 0; n--) fraction = n / 2 / (t + fraction)
    erfc = Math.exp(-t * t) / Math.sqrt(Math.PI) / (t + fraction)
  }
  return x > 0 ? 1 - erfc / 2 : erfc / 2
}

/** The largest multiple of 2^-30 whose Gaussian-DP curve at ε is at most δ. */
export function muOf(epsilon, delta) {
  const spends = (mu) => Phi(-epsilon / mu + mu / 2) - Math.exp(epsilon) * Phi(-epsilon / mu - mu / 2)
  let [low, high] = [0, 2 ** 35]
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    if (spends(middle * 2 ** -30) <= delta) low = middle
    else high = middle
  }
  return low * 2 ** -30
}

/** The variance of each element's noise of one member. `n_min` is the manifest's. */
export function variances(study, step, n_min) {
  const { noise } = study.q
  const mu = muOf(noise.epsilon, noise.delta) * Math.sqrt(RECIPES[noise.recipe][step])
  const sigma = sensitivity(study, step) / mu
  const shape = blocks(study, step, [], [], {})
  return shape.flatMap(({ values, degree, weight, diagonal }) =>
    values.map((_, i) => {
      const dev = (sigma * STEP ** degree) / weight / (diagonal && !diagonal[i] ? Math.SQRT2 : 1)
      return Math.ceil((dev * dev + 4) / (n_min - study.a))
    }),
  )
}

/** Refuse a cohort whose noise would not fit the ring or be too coarse (NOISE-1). */
export function requireNoiseFits(study, n, n_min) {
  for (const [step] of study.steps) {
    const all = variances(study, step, n_min)
    const [low, high] = [Math.min(...all), Math.max(...all)]
    const most = study.q.records.most * study.q.members_max * FULL
    const root = Math.floor(Math.sqrt(n * high))
    require_(low >= 16 && high < 2 ** 62 && most + 12 * (root + 1) < 2 ** 47, 'weak-parameters')
  }
}

/** A fair draw below `bound`, a BigInt. */
function below(bound) {
  const bytes = Math.ceil(bound.toString(2).length / 8)
  const limit = (256n ** BigInt(bytes) / bound) * bound
  for (;;) {
    const drawn = BigInt(`0x${randomBytes(bytes).toString('hex')}`)
    if (drawn < limit) return drawn % bound
  }
}

/** True with probability exp(-numerator/denominator) (Canonne, Kamath, Steinke 2020, algorithm 1). */
function bernoulliExp(numerator, denominator) {
  for (; numerator > denominator; numerator -= denominator) if (!bernoulliExp(denominator, denominator)) return false
  let k = 1n
  while (below(denominator * k) < numerator) k++
  return k % 2n === 1n
}

/** A discrete Gaussian of an integer variance (the same paper, algorithm 3), with Laplace of scale ⌊σ⌋ + 1. */
export function discreteGaussian(variance) {
  const v = BigInt(variance)
  const t = BigInt(Math.floor(Math.sqrt(variance))) + 1n
  for (;;) {
    const u = below(t)
    if (!bernoulliExp(u, t)) continue
    let w = 0n
    while (bernoulliExp(1n, 1n)) w++
    const magnitude = u + t * w
    const negative = below(2n) === 1n
    if (negative && magnitude === 0n) continue
    const distance = magnitude * t - v < 0n ? v - magnitude * t : magnitude * t - v
    if (bernoulliExp(distance * distance, 2n * v * t * t)) return negative ? -magnitude : magnitude
  }
}
