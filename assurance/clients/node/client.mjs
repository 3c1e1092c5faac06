/** Runs at a coordinator: enrol, pair, contribute, decrypt, verify. `node client.mjs` prints how it is called. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { COORDINATOR, Fault, ZERO, hex, require_, same, sha256, unhex } from './encoding.mjs'
import { checkCanaries, readPack } from './canaries.mjs'
import { checkStudy } from './checks.mjs'
import { checkHead, checkSum } from './heads.mjs'
import { unknownSums } from './history.mjs'
import { Ledger } from './ledger.mjs'
import { readMaterial } from './material.mjs'
import { Member } from './member.mjs'
import * as m from './messages.mjs'
import { Policy } from './policy.mjs'
import { Coordinator } from './rest.mjs'
import { checkRecord, checkTranscript } from './result.mjs'
import { readTensors } from './safetensors.mjs'
import { createFolder, openFolder, writeDurably } from './store.mjs'
import { isReserved } from './study.mjs'
import { audit } from './transcript.mjs'

const WAIT_S = 25
/** What a study may publish only with its sums, which members read then (wire: Studies). */
const SUMS = new Set(['pooled', 'posterior'])
/** Causes after which asking again is of no use: the owner acts, or the cohort has ended. */
const FINAL = new Set([
  'card-conflict',
  'card-expired',
  'state-restored',
  'canaries-differ',
  'policy-refused',
  'study-refused',
  'cohort-too-small',
])

export class Client {
  /** `home`: a folder that `openFolder` opened. `records`: features, labels, ids (or null). */
  constructor({ home, url, records, policy, clock = () => Date.now() / 1000, log = console.error }) {
    Object.assign(this, { records, policy, log, clock, federation: home.federation, name: home.member })
    this.ledger = new Ledger(home.member, home.federation, policy.mu_budget)
    this.member = new Member({ ...home, clock, allows: (...given) => this.allows(...given) })
    this.coordinator = new Coordinator(url, home.member, home.identity, clock)
  }

  /** OPEN-26. */
  allows(opening, facts, state) {
    this.policy.checkOpening(opening, facts, this.clock())
    this.ledger.allows(state, opening, facts)
  }

  /** Take part in runs until one has a result (`once`) or for ever. Yields each result's record and findings. */
  async *join(once) {
    const federation = `/v1/federations/${hex(this.federation)}`
    await this.patiently('roster', () => this.fetchRoster())
    const [done, running] = [new Set(), new Map()]
    for (let after = -1, news = null; ;) {
      news ??= this.coordinator
        .get(`${federation}/runs`, { after, wait_s: after < 0 ? 0 : WAIT_S })
        .then(({ json }) => ({ runs: json }))
      const { runs, cohort, results, isOver } = await Promise.race([news, ...running.values()])
      if (runs) {
        ;[news, after] = [null, runs.revision]
        for (const run of runs.runs.filter((one) => !done.has(one.cohort) && this.takes(one))) {
          done.add(run.cohort)
          running.set(run.cohort, this.follow(run))
        }
        continue
      }
      running.delete(cohort)
      yield* results
      if (isOver && this.member.state.cohorts.has(cohort))
        this.member.change((state) => (state.cohorts.get(cohort).finished = true))
      if (once && results.length) return
    }
  }

  async follow({ name, period, cohort }) {
    const results = []
    const isOver = await this.patiently(`${name} ${period}`, () => this.takePart(cohort, results))
    return { cohort, results, isOver }
  }

  /** Act; after what is refused ask again later, unless the owner must act or the cohort has ended (wire: Causes). */
  async patiently(what, act) {
    for (let pause_s = 1; ; pause_s = Math.min(8, 2 * pause_s)) {
      try {
        return await act()
      } catch (error) {
        if (!(error instanceof Fault)) throw error
        this.log(`${what}: ${error.message}`)
        if (FINAL.has(error.cause)) return false
        await sleep(1000 * pause_s)
      }
    }
  }

  async fetchRoster() {
    const { bytes } = await this.coordinator.get(`/v1/federations/${hex(this.federation)}/roster`)
    this.member.acceptRoster(bytes, this.federation)
  }

  /** Whether a run is one to join or to go on with: over data alone (periods). */
  takes(run) {
    const ours = this.member.state.cohorts.get(run.cohort)
    return ours ? !ours.finished : !run.over && run.state === 'enrolling' && !isReserved(run.period)
  }

  /** One cohort from its invitation to the end of its run. Returns true. */
  async takePart(name, results) {
    const cohort = unhex(name)
    const isIn = this.member.state.cohorts.has(name) || (await this.enrol(name))
    if (isIn && (await this.pair(name, cohort))) await this.rounds(name, cohort, results)
    return true
  }

  /** Answer a cohort's invitation; after a yes its card is stored. */
  async enrol(name) {
    const { json } = await this.coordinator.get(`/v1/cohorts/${name}/invitation`)
    await this.fetchClosings()
    const invited = this.takeInvitation(json)
    const { study } = invited
    if (study.rehearses) {
      const pack = `/v1/federations/${hex(this.federation)}/canaries/${study.content.rehearsal.pack}`
      checkCanaries(study, readPack(study, (await this.coordinator.get(pack)).bytes), this.records, this.name)
    }
    const yes = this.answer(invited)
    this.log(`${json.cohort.name} ${json.cohort.period}: ${yes ? 'enrolling' : 'not enough free records'}`)
    return yes
  }

  /** Check an invitation, and take note of its roster and study (member: Approving). */
  takeInvitation({ cohort, roster: rosterHex, study: studyHex, card }) {
    if (card) this.member.checkNewestCard(unhex(card))
    const roster = this.member.acceptRoster(unhex(rosterHex), this.federation)
    const study = checkStudy(unhex(studyHex), roster)
    this.member.change((state) => this.ledger.seeStudy(state, study, this.clock()))
    this.policy.checkStudy(study)
    const { period } = cohort
    require_(!isReserved(period), 'terms-refused', COORDINATOR)
    const counter = BigInt(cohort.counter)
    const repeats = cohort.repeats ? unhex(cohort.repeats) : ZERO
    const named = m.cohortOf({ roster_hash: m.rosterHash(roster), counter, study: study.hash, period, repeats })
    require_(hex(named) === cohort.cohort, 'wrong-cohort', COORDINATOR)
    return { study, run: { roster: unhex(rosterHex), study: unhex(studyHex), counter, period, repeats } }
  }

  /** Answer an invitation that was checked; after a yes make the card. */
  answer({ study, run }) {
    const { period, repeats } = run
    const yes = this.member.change((state) =>
      same(repeats, ZERO)
        ? this.ledger.answer(state, study, period, this.records, this.clock())
        : this.ledger.answerAgain(state, study, period, repeats, this.records),
    )
    if (yes) this.member.enrol(run)
    return yes
  }

  /** Send card and pairing until the keys are there. False where the cohort failed. */
  async pair(name, cohort) {
    const state = () => this.member.state.cohorts.get(name)
    let after = -1
    while (state().phase !== 'ready') {
      this.member.tick(cohort)
      const { phase, enrolment, pairing } = state()
      if (phase === 'lapsed') return false
      const answer =
        phase === 'enrolled'
          ? await this.coordinator.put(`/v1/cohorts/${name}/cards/${this.name}`, enrolment, { after, wait_s: WAIT_S })
          : await this.coordinator.put(`/v1/cohorts/${name}/pairings/${this.name}`, pairing, { wait_s: WAIT_S })
      if (answer.json?.state === 'failed') return false
      if (answer.json) after = answer.json.version
      else this.member.receive(cohort, answer.bytes)
    }
    return true
  }

  async rounds(name, cohort, results) {
    const done = new Set()
    for (let after = -1; ;) {
      const { json: view } = await this.coordinator.get(`/v1/cohorts/${name}`, { after, wait_s: after < 0 ? 0 : WAIT_S })
      after = view.version
      for (const round of view.rounds) {
        if (done.has(round) || this.hasEnded(round)) continue
        done.add(round)
        await this.fetchClosings()
        const result = await this.round(round, name, cohort)
        if (result) results.push(result)
        after = -1
      }
      if (after < 0 || (view.step !== null && view.state !== 'failed')) continue
      const facts = this.member.factsOf(this.member.state.cohorts.get(name))
      this.member.change((state) => this.ledger.onRunOver(state, facts))
      return
    }
  }

  /** Whether the member knows the end of a round that it opened. */
  hasEnded = (round) => [...this.member.state.attempts].some(([context, attempt]) => context.startsWith(round) && attempt.end)

  /** Fetch the ends of attempts that the member has not seen closed (OPEN-8, SELECT-7). */
  async fetchClosings() {
    for (const [context, attempt] of [...this.member.state.attempts]) {
      if (attempt.end || attempt.certificate) continue
      const answer = await this.coordinator
        .get(`/v1/contexts/${context}/closing`, { federation: hex(this.federation) })
        .catch((error) => {
          if (!(error instanceof Fault)) throw error
        })
      if (answer?.bytes) this.member.receive(attempt.link.cohort, answer.bytes)
    }
  }

  /** Answer what a round asks until it has ended. Returns its result, if it has one. */
  async round(round, name, cohort) {
    const path = `/v1/rounds/${round}`
    const requests = `${path}/requests/${this.name}`
    let { json: view } = await this.coordinator.get(path)
    let answer = await this.coordinator.get(requests)
    for (let taken = null; ;) {
      const query = { after: answer.version ?? -1, wait_s: WAIT_S }
      if (answer.bytes && !(taken && same(taken, answer.bytes))) {
        taken = answer.bytes
        if (view.ended && !this.member.state.attempts.has(view.context)) return null // it never opened this round
        if (view.ended) this.member.receive(cohort, taken)
        else {
          if (answer.roster && BigInt(answer.roster) > this.member.state.newestRoster) await this.fetchRoster()
          answer = (await this.takeAndSend(taken, path, cohort, query)) ?? { version: answer.version }
        }
        continue
      }
      if (view.ended) break
      ;({ json: view } = await this.coordinator.get(path))
      answer = await this.coordinator.get(requests, view.ended ? {} : query)
    }
    this.log(`round ${round}: ${view.spec.step} ${view.state}`)
    return view.state === 'done' ? this.verify(path, unhex(view.context), cohort) : null
  }

  /** Take a message and send what it asks for. Returns the coordinator's next answer; null where nothing is to be sent. */
  async takeAndSend(bytes, path, cohort, query) {
    const message = m.decode(bytes)
    const { type } = message
    if (type === 'Opening') await this.lookForForgotten(message)
    if (type === 'ErasureRequest' && !this.member.state.attempts.has(hex(message.context))) {
      this.member.openToErase(cohort, (await this.coordinator.get(`${path}/opening`)).bytes, message.context)
    }
    const sent = this.member.receive(cohort, bytes)
    if (type !== 'Opening') return sent.length ? this.coordinator.post(`${path}/answers`, sent[0], query) : null
    const upload = sent[0] ?? this.member.upload(cohort, await this.vector(path, cohort))
    let { json } = await this.coordinator.put(`${path}/uploads/${this.name}`, upload)
    let last = null
    const chunks = this.member.chunks(cohort)
    for (const index of json.missing)
      last = await this.coordinator.put(`${path}/uploads/${this.name}/chunks/${index}`, chunks[index], query)
    return last
  }

  /** Fetch what shows whether this folder forgot a sum (RESTORE-3). */
  async lookForForgotten(opening) {
    const shown = (path, query) =>
      this.coordinator.get(path, query).then(
        ({ bytes }) => bytes,
        (error) => {
          if (!(error instanceof Fault)) throw error
          return error.cause === 'unknown-member' ? undefined : null
        },
      )
    for (const link of unknownSums(opening, this.member.state)) {
      const [cohort, context, federation] = [link.cohort, link.context, this.federation].map(hex)
      const isFormed = this.member.state.cohorts.get(cohort).phase === 'ready'
      const cards = isFormed ? null : await shown(`/v1/cohorts/${cohort}/manifest/${this.name}`)
      const opening = await shown(`/v1/rounds/${context.slice(0, 16)}/opening`)
      if (cards === undefined) {
        this.member.checkLeftOut(link, { manifest: await shown(`/v1/cohorts/${cohort}/manifest`), opening })
      } else {
        const closing = await shown(`/v1/contexts/${context}/closing`, { federation })
        this.member.checkForgotten(link, { cards, opening, closing })
      }
    }
  }

  async vector(path, cohort) {
    const { attempt } = this.member.state.cohorts.get(hex(cohort))
    const opening = m.decode(attempt.opening)
    const facts = this.member.factsOf(this.member.state.cohorts.get(hex(cohort)))
    const material = await this.material(path, facts.study, opening.terms)
    return this.member.change((state) => this.ledger.vector(state, opening, facts, material))
  }

  /** Disclosure, or record and head, and the transcript of a finished round. Returns what was found. */
  async verify(path, context, cohort) {
    const { step } = this.member.evidence(context).opening.terms
    const counts = ['count', 'rows'].includes(step)
    if (counts && !this.member.state.sums.has(hex(context)))
      this.member.receive(cohort, (await this.coordinator.get(`${path}/disclosure/${this.name}`)).bytes)
    const { record, head } = counts ? { record: null, head: null } : await this.record(path, context, cohort)
    const { json: transcript } = await this.coordinator.get(`${path}/transcript`)
    const report = audit(transcript.entries.map(unhex), unhex(transcript.signature), this.federation)
    checkTranscript(report, this.member.evidence(context), record)
    this.member.change((state) => (state.attempts.get(hex(context)).recorded = true)) // stands for the closing (SELECT-7)
    return {
      step,
      round: hex(context).slice(0, 16),
      record,
      head,
      findings: report.findings,
      counted: report.counted,
      sums: this.member.state.sums.get(hex(context)),
    }
  }

  async record(path, context, cohort) {
    const { json: record } = await this.coordinator.get(`${path}/result`)
    if (record.evicted.join() !== this.member.evidence(context).evicted.join()) {
      this.member.receive(cohort, (await this.coordinator.get(`${path}/result/evictions`)).bytes)
    }
    const held = this.member.evidence(context)
    checkRecord(record, held)
    return { record, head: record.step === 'mean' ? null : await this.head(path, record, held) }
  }

  /** The head that a record names, checked against the study, and by a reader of the sums against them (RESULT-8, RESULT-10). */
  async head(path, record, { facts, opening, certificate }) {
    const { study, roster } = facts
    const { bytes: head } = await this.coordinator.get(`${path}/result/weights`)
    const unanswered = [...new Set([...record.withheld, ...record.solution.empty_classes])]
    const { centre } = await this.material(path, study, opening.terms)
    checkHead(study, { digest: record.head, unanswered, withheld: record.withheld }, head, centre)
    const isReader = roster.readers.includes(this.name) || study.content.after.publish.some((name) => SUMS.has(name))
    if (isReader && !study.noisy && study.q.statistics.every(({ kind }) => kind === 'ffc')) {
      const { bytes } = await this.coordinator.get(`${path}/result/sums`)
      require_(hex(sha256(bytes)) === record.sums, 'result-mismatch', COORDINATOR)
      const sum = readTensors(bytes).tensors.sum.values.map(Number)
      const members = certificate.survivors.length - record.evicted.length
      checkSum(study, sum, members, { rows: record.rows, ridge: record.solution.ridge }, head)
    }
    return head
  }

  /** The step's input, which the terms name (NOISE-3). */
  async material(path, study, { step, material }) {
    if (!study.takesMaterial(step)) return {}
    const { bytes } = await this.coordinator.get(`${path}/material`)
    require_(same(sha256(bytes), material), 'terms-refused', COORDINATOR)
    return readMaterial(study, step, bytes)
  }
}

const USAGE = `node client.mjs new FOLDER --member ID --admin-key HEX [--held-out SHARE]
node client.mjs join FOLDER DATA.json --url URL --approve DIGEST [--approve …] [--once] [--mu-budget μ] [--limits JSON]
node client.mjs verify TRANSCRIPT.json --admin-key HEX`

async function main() {
  const text = { type: 'string' }
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      member: text,
      'admin-key': text,
      'held-out': text,
      url: text,
      approve: { ...text, multiple: true, default: [] },
      once: { type: 'boolean', default: false },
      'mu-budget': text,
      limits: text,
    },
  })
  const [command, place, data] = positionals
  if (command === 'new') {
    createFolder(place, values.member, values['admin-key'], Number(values['held-out'] ?? 0.1))
    console.log(readFileSync(join(place, 'identity.json'), 'utf8'))
  } else if (command === 'join') {
    const { features, labels, ids = null } = JSON.parse(readFileSync(data))
    const limits = { approved: values.approve, mu_budget: Number(values['mu-budget'] ?? 0), ...JSON.parse(values.limits ?? '{}') }
    const records = { features, labels, ids }
    const client = new Client({ home: openFolder(place), url: values.url, records, policy: new Policy(limits) })
    for await (const { record, head, ...found } of client.join(values.once)) {
      if (record) writeDurably(place, `${found.round}.json`, JSON.stringify(record))
      if (head) writeDurably(place, `${found.round}.head`, head)
      console.log(JSON.stringify({ ...found, rows: record?.rows, head: record?.head }))
    }
  } else if (command === 'verify') {
    const { entries, signature } = JSON.parse(readFileSync(place))
    const { findings, counted, signed, head } = audit(entries.map(unhex), unhex(signature), unhex(values['admin-key']))
    console.log(JSON.stringify({ head: hex(head), signed, counted, findings }))
  } else {
    console.error(USAGE)
    process.exitCode = 2
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  await main()
  process.exit() // other runs may still be waited for
}
