/** Studies: fields, digests, CONTENT's rules, and the numbers of vectors (wire: Studies; member: Exact vectors; member: Noise). */
import { COORDINATOR, Fault, FORBIDDEN_TEXT, H, ID, canonical, require_ } from './encoding.mjs'
import { leastSurvivors, sizes } from './sizes.mjs'

const DAY_S = 86400
/** Whether a period sums canaries or held-out records, which this client has no part in (periods). */
export const isReserved = (period) => /^(rehearsal|judge)/.test(period)

export const LEVELS = [1, 2, 3, 4, 6, 8, 12, 16] // quarters of `least`
const WEIGHTS = [1, 1, 1, 1, 2, 2, 4, 4]

// A check takes a value and says whether it is admitted.
const integer =
  (low, high = Number.MAX_SAFE_INTEGER) =>
  (v) =>
    Number.isSafeInteger(v) && v >= low && v <= high
const real = (admits) => (v) => typeof v === 'number' && Number.isFinite(v) && admits(v)
const text =
  (longest, shortest = 0) =>
  (v) =>
    typeof v === 'string' && v.isWellFormed() && !FORBIDDEN_TEXT.test(v) && [...v].length <= longest && [...v].length >= shortest
const oneOf =
  (...values) =>
  (v) =>
    values.includes(v)
const pattern = (regex) => (v) => typeof v === 'string' && regex.test(v)
const orNull = (check) => (v) => v === null || check(v)
const boolean = (v) => typeof v === 'boolean'
const list =
  (item, admits = () => true) =>
  (v) =>
    Array.isArray(v) && v.every(item) && admits(v)
const distinct = (v) => new Set(v).size === v.length
const record = (fields) => (v) =>
  v !== null &&
  typeof v === 'object' &&
  !Array.isArray(v) &&
  Object.keys(v).length === Object.keys(fields).length &&
  Object.entries(fields).every(([name, check]) => Object.hasOwn(v, name) && check(v[name]))

const HEX64 = pattern(/^[0-9a-f]{64}$/)
const KINDS = ['ffc', 'random-features', 'ccvr']
const STATISTIC = {
  ffc: record({ kind: oneOf('ffc') }),
  'random-features': record({
    kind: oneOf('random-features'),
    size: (v) => integer(2, 65536)(v) && v % 2 === 0,
    bandwidth: real((v) => v >= 0.1 && v <= 1e3),
  }),
  ccvr: record({ kind: oneOf('ccvr') }),
}
const epsilon = real((v) => v > 0 && v <= 10)
const delta = real((v) => v > 0 && v <= 1e-5)
const window = integer(1, 30 * DAY_S)
const column = (v) => text(64, 1)(v) && !/^\p{White_Space}|\p{White_Space}$/u.test(v)

const gradients = (count, share) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`gradient-${i + 1}`, share]))
export const RECIPES = {
  sum: { sum: 1 },
  'mean+sum': { mean: 0.1, sum: 0.9 },
  'mean+sum+6-gradients': { mean: 0.05, sum: 0.2, ...gradients(6, 0.125) },
  'mean+sum+16-gradients': { mean: 0.05, sum: 0.15, ...gradients(16, 0.05) },
}

const CONTENT = record({
  format: oneOf('veilsum-study/2'),
  notes: record({
    name: pattern(ID),
    version: integer(1, 2 ** 32 - 1),
    purpose: text(1024),
    display: list(text(64)),
    expires: integer(0),
    why_not_listable: text(1024),
    why_not_withheld: text(1024),
  }),
  question: record({
    extractor: HEX64,
    dim: integer(2, 65536),
    columns: list(column, distinct),
    classes: list(pattern(/^[!-~]([ -~]{0,62}[!-~])?$/), (v) => distinct(v) && v.length >= 2 && v.length <= 10000),
    statistics: list(
      (v) => STATISTIC[v?.kind]?.(v) ?? false,
      (v) => {
        const places = v.map((statistic) => KINDS.indexOf(statistic.kind))
        return v.length > 0 && places.every((place, i) => i === 0 || place > places[i - 1])
      },
    ),
    constant: boolean,
    ring_bits: oneOf(32, 48),
    records: record({ least: integer(1), most: integer(1, 2 ** 32 - 1), least_per_class: integer(1), rows_per_id: integer(1) }),
    listable: boolean,
    members_min: integer(3, 10000),
    members_max: integer(3, 10000),
    a: integer(0, 10000),
    h_min: integer(3, 10000),
    loss: integer(0, 374),
    withhold: orNull(record({ margin: integer(0) })),
    noise: orNull(record({ epsilon, delta, unit: oneOf('record', 'member'), recipe: oneOf(...Object.keys(RECIPES)) })),
    judge: orNull(
      record({
        epsilon,
        delta,
        heads: integer(1, 3),
        positive: orNull((v) => typeof v === 'string'),
        bins: record({ confidence: integer(2, 20), score: integer(2, 32) }),
      }),
    ),
    windows: record({ enrol: window, upload: window, answer: window }),
  }),
  after: record({
    ridge: (v) => v === 'gcv' || real((ridge) => ridge > 0)(v),
    publish: list(oneOf('lda', 'ncm', 'pooled', 'posterior'), (v) => v.every((name, i) => i === 0 || name > v[i - 1])),
    readers: oneOf('members', 'anyone'),
    ccvr: orNull(record({ samples_per_class: integer(1, 100000), power: real((v) => v > 0 && v <= 1) })),
  }),
  rehearsal: orNull(record({ pack: HEX64, tolerance: real((v) => v > 0 && v <= 1) })),
})

const triangle = (l) => (l * (l + 1)) / 2

/** CONTENT-1 to CONTENT-21, in this order. */
function rules(study) {
  const { notes, question: q, after } = study.content
  const { records, noise, withhold, windows } = q
  const { a, margin } = study
  const exact = !noise
  const kinds = q.statistics.map((statistic) => statistic.kind)
  const n_min = study.leastSurvivors(q.members_min)
  const rows = records.most * q.members_max
  check(notes.display.length === 0 || notes.display.length === q.classes.length)
  check(q.columns.length === 0 || q.columns.length === q.dim)
  check(
    ['least', 'least_per_class', 'rows_per_id'].every((name) => records[name] <= records.most) && q.members_min <= q.members_max,
  )
  check(kinds.includes('ccvr') === (after.ccvr !== null))
  if (exact) check(records.least * (n_min - a) >= study.needWhole)
  check(q.members_min >= n_min)
  check(a >= Math.floor(q.members_max / 4))
  check(!q.listable || noise)
  check((notes.why_not_listable !== '') === !q.listable && (notes.why_not_withheld !== '') === (!withhold && !noise))
  const small = (d) => d * records.most * q.members_max <= 1
  check(!(withhold && noise))
  if (noise) check(small(noise.delta) && q.ring_bits !== 32 && rows < 2 ** 22 && kinds.length === 1)
  if (kinds.includes('ccvr')) check(kinds.length === 1 && (noise ? ['sum', 'mean+sum'].includes(noise.recipe) : withhold))
  check(!q.constant || kinds.includes('ffc'))
  if (q.judge) check(small(q.judge.delta) && (q.judge.positive === null || q.classes.includes(q.judge.positive)))
  if (exact) check(study.scale >= 8)
  if (withhold) check(margin <= q.members_min - n_min)
  check(windows.upload + 3 * windows.answer <= 30 * DAY_S)
  check(study.steps.every(([, length]) => length <= 2 ** 32))
  check(q.statistics.every((statistic) => statistic.kind !== 'random-features' || q.dim * statistic.size <= 2 ** 27))
  if (exact && withhold) check(study.leastHolders <= q.members_min)
  sizes(q.members_min, q.members_min, 0, 0, study.sizeRule(false), false)
}
const check = (holds) => require_(holds, 'study-refused', 'admin')

/** A study's content with the numbers that follow from it. */
export class Study {
  constructor(content) {
    this.content = content
    const { question: q } = content
    this.q = q
    this.a = q.a
    this.margin = q.withhold?.margin ?? 0
    this.noisy = q.noise !== null
    this.rehearses = content.rehearsal !== null
    this.question = H('question', Buffer.from(canonical(q)))
    const { version, expires, ...notes } = content.notes
    this.approval = H('approval', Buffer.from(canonical({ ...content, notes })))
    this.statistics = q.statistics.map((statistic) => this.#sized(statistic))
    this.width = Math.max(...this.statistics.map((s) => s.l))
    this.length = this.statistics.reduce((sum, statistic) => sum + statistic.elements, 0)
    this.needWhole = Math.max(50, this.#need(this.length, this.width))
    const ccvr = this.statistics.some((s) => s.kind === 'ccvr')
    this.classNumbers = this.statistics.reduce((sum, s) => sum + (ccvr ? 1 + q.dim + triangle(q.dim) : s.l + 1), 0)
    this.needClass = this.#need(this.classNumbers, ccvr ? q.dim : 0)
    this.leastHolders = q.a + this.margin + Math.max(q.h_min, Math.ceil(this.needClass / q.records.least_per_class))
    this.scale = this.noisy ? null : this.#scale()
    this.steps = this.#steps()
  }

  /** Parse and check a study's content. Refuses it as `study-refused`. */
  static parse(bytes) {
    let content
    try {
      const source = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
      content = JSON.parse(source)
      require_(canonical(content) === source, 'study-refused', 'admin')
    } catch {
      throw new Fault('study-refused', 'admin')
    }
    require_(CONTENT(content), 'study-refused', 'admin')
    try {
      const study = new Study(content)
      rules(study)
      return study
    } catch (error) {
      throw error instanceof Fault ? new Fault('study-refused', 'admin') : error
    }
  }

  #sized(statistic) {
    const { dim, classes, constant } = this.q
    const C = classes.length
    if (statistic.kind === 'ccvr') return { ...statistic, l: dim, elements: C * (1 + dim + triangle(dim)) }
    const l = statistic.kind === 'ffc' ? dim + (constant ? 1 : 0) : statistic.size
    return { ...statistic, l, elements: triangle(l) + l * C + C }
  }

  #need(M, width) {
    return this.q.records.rows_per_id * Math.max(2 * width, Math.ceil((2 * M) / (this.q.dim - 1)))
  }

  #scale() {
    const { records, members_max, ring_bits } = this.q
    const rows = BigInt(records.most * members_max)
    const rounding = BigInt(Math.ceil(members_max / 2))
    for (let s = 40n; s > 0n; s--) if (rows * 2n ** s + rounding < 2n ** BigInt(ring_bits - 1)) return Number(s)
    return 0
  }

  #steps() {
    const { dim, classes, noise, withhold } = this.q
    const C = classes.length
    if (!noise)
      return [
        ...(withhold
          ? [
              ['count', C],
              ['rows', LEVELS.length],
            ]
          : []),
        ['sum', this.length],
      ]
    const [{ kind, l, elements }] = this.statistics
    const lengths = { mean: dim + 1, sum: kind === 'ccvr' ? elements : triangle(l) + l * C }
    return Object.keys(RECIPES[noise.recipe]).map((step) => [step, lengths[step] ?? l * C])
  }

  /** A period's kind is one that the study has (CARDS-2). */
  requirePeriod(period, repeats) {
    const kind = ['rehearsal', 'judge'].find((name) => period.startsWith(name))
    const has = { rehearsal: this.rehearses, judge: this.q.judge }[kind]
    require_(!kind || (period.startsWith(`${kind}-`) && has && !repeats), 'terms-refused', COORDINATOR)
  }

  lengthOf(step, period) {
    const steps = period.startsWith('judge-') ? [['judge', this.#judged()]] : this.steps
    const found = steps.find(([name]) => name === step)
    require_(found, 'terms-refused', COORDINATOR)
    return found[1]
  }

  #judged() {
    const { classes, judge } = this.q
    const scores = classes.length === 2 || judge.positive !== null ? 2 * judge.bins.score : 0
    return 2 ** judge.heads + 2 * (classes.length + 1) + 3 * judge.bins.confidence + scores
  }

  bitsOf = (step) => ({ count: 32, rows: 32, judge: 48 })[step] ?? this.q.ring_bits
  /** Whether the terms of a step name material: a judgement's, and all of a chain's but its first. */
  takesMaterial = (step) => step === 'judge' || (this.noisy && step !== this.steps[0][0])
  leastSurvivors = (N) => leastSurvivors(N, this.a, this.q.h_min)
  /** Fewest survivors of an attempt, where `n_min` is the manifest's. */
  leastOf = (step, n_min) => (step === 'count' ? Math.max(n_min + this.margin, this.leastHolders) : n_min)

  sizeRule() {
    const { a, h_min, loss, members_min, withhold } = this.q
    return { a, h_min, loss, members_min, withheldMin: withhold && ((n_min) => Math.max(n_min + this.margin, this.leastHolders)) }
  }

  withheldBy = (holders) => holders.flatMap((count, place) => (count < this.leastHolders ? [place] : []))

  /** Four times the rows of honest members that the counted levels prove (member: Enough rows). */
  quarterRows = (reached) =>
    this.q.records.least * reached.reduce((sum, count, i) => sum + WEIGHTS[i] * Math.max(0, count - this.a - this.margin), 0)

  /** Whether a run goes on to its sum; before its `rows`, whether it goes on to them. */
  goesOn(holders, reached) {
    const withheld = this.withheldBy(holders).length
    if (!withheld) return true
    return this.q.classes.length - withheld >= 2 && (reached === null || this.quarterRows(reached) >= 4 * this.needWhole)
  }
}
