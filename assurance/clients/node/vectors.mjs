/** A member's exact vectors (member: Exact vectors). Sums are in binary64, in the order of the rows. */
import { createHash } from 'node:crypto'
import { LEVELS } from './study.mjs'

/** `f / max|f|`, then to length 1. */
export function unit(row) {
  const largest = row.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
  const scaled = row.map((value) => value / largest)
  const length = Math.sqrt(scaled.reduce((sum, value) => sum + value * value, 0))
  return scaled.map((value) => value / length)
}

/** The rows with columns set to 0 that fewer than 5 rows have, or that one row has half of. */
export function clearSparseColumns(rows, dim) {
  const cleared = rows.map((row) => row.slice())
  for (let j = 0; j < dim; j++) {
    let [count, largest, sum] = [0, 0, 0]
    for (const row of rows) {
      const square = row[j] * row[j]
      if (row[j] !== 0) count++
      if (square > largest) largest = square
      sum += square
    }
    if (count < 5 || 2 * largest > sum) for (const row of cleared) row[j] = 0
  }
  return cleared
}

/** Rows of length 1 after the rule for sparse columns: over each class alone with ccvr, else over all. */
function preparedRows(study, rows, labels) {
  const units = rows.map(unit)
  const { dim, classes } = study.q
  if (study.statistics[0].kind !== 'ccvr') return clearSparseColumns(units, dim)
  const out = units.slice()
  classes.forEach((_, c) => {
    const places = labels.flatMap((label, i) => (label === c ? [i] : []))
    clearSparseColumns(
      places.map((i) => units[i]),
      dim,
    ).forEach((row, i) => (out[places[i]] = row))
  })
  return out
}

/** `nz − n_u` of rows (SELECT-4): their non-zero features after the rule, less one a row. */
export function spareFeatures(study, rows, labels) {
  return preparedRows(study, rows, labels).reduce((sum, row) => sum + row.filter((value) => value !== 0).length - 1, 0)
}

/** ω of random features, F/2 rows of dim. */
export function directions(study, statistic) {
  const { dim } = study.q
  const wanted = (statistic.size / 2) * dim
  const pairs = Math.ceil(wanted / 2)
  const stream = createHash('shake256', { outputLength: 16 * pairs })
    .update('veilsum calibration random features 1 ')
    .update(study.question)
    .digest()
  const uniform = (place) => (Number(stream.readBigUInt64LE(8 * place) >> 11n) + 0.5) * 2 ** -53
  const normal = []
  for (let i = 0; i < pairs; i++) {
    const radius = Math.sqrt(-2 * Math.log(uniform(2 * i)))
    const angle = 2 * Math.PI * uniform(2 * i + 1)
    normal.push(radius * Math.cos(angle), radius * Math.sin(angle))
  }
  return Array.from({ length: statistic.size / 2 }, (_, j) =>
    normal.slice(j * dim, (j + 1) * dim).map((value) => value / statistic.bandwidth),
  )
}

/** φ(z) of each row. */
export function randomFeatures(study, statistic, rows) {
  const omega = directions(study, statistic)
  const scale = Math.sqrt(2 / statistic.size)
  return rows.map((row) =>
    omega.flatMap((direction) => {
      const angle = direction.reduce((sum, value, i) => sum + value * row[i], 0)
      return [scale * Math.cos(angle), scale * Math.sin(angle)]
    }),
  )
}

export const constantRow = (row) => [...row.map((value) => Math.sqrt(0.9) * value), Math.sqrt(0.1)]

/** Upper triangle of Σ x xᵀ, row by row. */
export function upper(rows, width) {
  const out = []
  for (let i = 0; i < width; i++) {
    for (let j = i; j < width; j++) {
      let sum = 0
      for (const row of rows) sum += row[i] * row[j]
      out.push(sum)
    }
  }
  return out
}

const counts = (labels, C) => Array.from({ length: C }, (_, c) => labels.filter((label) => label === c).length)
const columnSums = (rows, width) => Array.from({ length: width }, (_, i) => rows.reduce((sum, row) => sum + row[i], 0))
const ofClass = (rows, labels, c) => rows.filter((_, i) => labels[i] === c)

function moments(rows, labels, width, C) {
  const sums = Array.from({ length: C }, (_, c) => columnSums(ofClass(rows, labels, c), width))
  const byFeature = Array.from({ length: width }, (_, i) => sums.map((sum) => sum[i])).flat()
  return [...upper(rows, width), ...byFeature, ...counts(labels, C)]
}

/** Half to even. */
export function rint(value) {
  const floor = Math.floor(value)
  const rest = value - floor
  if (rest !== 0.5) return Math.round(value)
  return floor % 2 === 0 ? floor : floor + 1
}

const without = (rows, labels, withheld) => {
  const kept = labels.flatMap((label, i) => (withheld.includes(label) ? [] : [i]))
  return [kept.map((i) => rows[i]), kept.map((i) => labels[i])]
}

/** The vector of an exact `sum` (member: Exact vectors), as integers. */
export function exactVector(study, allRows, allLabels, withheld) {
  const [rows, labels] = without(allRows, allLabels, withheld)
  const { dim, classes, constant } = study.q
  const C = classes.length
  const z = preparedRows(study, rows, labels)
  const values = study.statistics.flatMap((statistic) => {
    if (statistic.kind === 'ffc') return moments(constant ? z.map(constantRow) : z, labels, statistic.l, C)
    if (statistic.kind === 'random-features') return moments(randomFeatures(study, statistic, z), labels, statistic.l, C)
    const byClass = classes.map((_, c) => ofClass(z, labels, c))
    return [...counts(labels, C), ...byClass.flatMap((own) => columnSums(own, dim)), ...byClass.flatMap((own) => upper(own, dim))]
  })
  const limit = rows.length * 2 ** study.scale
  return values.map((value) => Math.max(-limit, Math.min(limit, rint(2 ** study.scale * value))) + 0)
}

/** The bits of a `count` (member: Count vectors). */
export function countVector(study, rows, labels) {
  const { records, h_min, classes } = study.q
  return classes.map((_, c) => {
    const own = ofClass(rows, labels, c)
    const features = spareFeatures(
      study,
      own,
      own.map(() => c),
    )
    return own.length >= records.least_per_class && features * h_min >= 2 * study.classNumbers * records.rows_per_id ? 1 : 0
  })
}

/** The bits of `rows` (member: Count vectors). Rationals are compared as integers. */
export function rowsVector(study, allRows, allLabels, withheld) {
  const [rows, labels] = without(allRows, allLabels, withheld)
  const { least, rows_per_id } = study.q.records
  const features = BigInt(spareFeatures(study, rows, labels))
  return LEVELS.map((quarters) => {
    const wanted = BigInt(quarters) * BigInt(least) * 2n * BigInt(study.length) * BigInt(rows_per_id)
    return 4 * rows.length >= quarters * least && 4n * features * BigInt(study.needWhole) >= wanted ? 1 : 0
  })
}
