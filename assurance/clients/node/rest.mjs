/** A coordinator over REST, with requests signed as RFC 9421 says (wire: REST). */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, sha256 } from './encoding.mjs'
import { sign } from './keys.mjs'

const VALID_S = 60
const RETRIES = 20
const TRANSIENT = new Set([429, 502, 503, 504])

export class Coordinator {
  constructor(url, name, identity, clock = () => Date.now() / 1000) {
    Object.assign(this, { base: new URL(url), name, identity, clock })
  }

  #signed(method, url, body) {
    const digest = body && `sha-256=:${sha256(body).toString('base64')}:`
    const values = {
      '@method': method,
      '@authority': url.host,
      '@path': url.pathname,
      '@query': url.search || '?',
      ...(body && { 'content-digest': digest }),
    }
    const created = Math.floor(this.clock())
    const nonce = randomBytes(16).toString('hex')
    const names = Object.keys(values)
      .map((name) => `"${name}"`)
      .join(' ')
    const parameters = `(${names});created=${created};expires=${created + VALID_S};nonce="${nonce}";keyid="${this.name}";alg="ed25519";tag="veilsum-request-1"`
    const lines = [...Object.entries(values).map(([name, value]) => `"${name}": ${value}`), `"@signature-params": ${parameters}`]
    const signature = sign(this.identity, Buffer.from(lines.join('\n'))).toString('base64')
    return {
      'signature-input': `sig1=${parameters}`,
      signature: `sig1=:${signature}:`,
      ...(body && { 'content-digest': digest, 'content-type': 'application/octet-stream' }),
    }
  }

  /** The answer: status, version for the next `after`, and bytes, JSON or null. Refusals raise a Fault; the rest is tried again. */
  async ask(method, path, { query = {}, body = null } = {}) {
    const url = new URL(path, this.base)
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value))
    for (let tries = 1; ; tries++) {
      try {
        const response = await fetch(url, { method, body, headers: this.#signed(method, url, body) })
        const bytes = Buffer.from(await response.arrayBuffer())
        const isJson = /json/.test(response.headers.get('content-type') ?? '')
        const json = isJson ? JSON.parse(bytes) : null
        if (response.ok)
          return {
            status: response.status,
            version: response.headers.get('veilsum-version'),
            roster: response.headers.get('veilsum-roster'),
            json,
            bytes: isJson || response.status === 204 ? null : bytes,
          }
        if (!TRANSIENT.has(response.status) || tries > RETRIES)
          throw Object.assign(new Fault(json?.cause ?? `http-${response.status}`, ...(json?.parties ?? [])), {
            detail: json?.detail,
          })
        await sleep(1000 * Number(response.headers.get('retry-after') ?? 1))
      } catch (error) {
        if (error instanceof Fault || tries > RETRIES) throw error
        await sleep(Math.min(5000, 100 * 2 ** tries))
      }
    }
  }

  get = (path, query) => this.ask('GET', path, { query })
  put = (path, body, query) => this.ask('PUT', path, { body, query })
  post = (path, body, query) => this.ask('POST', path, { body, query })
}
