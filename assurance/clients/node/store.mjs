/** A member's folder: its key, whom it pins, and its state in one file that is replaced durably. */
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { deserialize, serialize } from 'node:v8'
import { hex, unhex } from './encoding.mjs'
import { publicOf } from './keys.mjs'
import { newLedger } from './ledger.mjs'
import { newState } from './member.mjs'

/** Write a file so that after a crash it is whole: the old one or the new one. */
export function writeDurably(folder, name, bytes) {
  const place = join(folder, name)
  const file = openSync(`${place}.new`, 'w', 0o600)
  writeSync(file, bytes)
  fsyncSync(file)
  closeSync(file)
  renameSync(`${place}.new`, place)
  const parent = openSync(folder, 'r')
  fsyncSync(parent)
  closeSync(parent)
}

export function createFolder(folder, member, adminKey, share = 0.1) {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  if (existsSync(join(folder, 'identity.json'))) throw new Error(`${folder} holds an identity already`)
  const seed = randomBytes(32)
  writeDurably(folder, 'identity.key', `${hex(seed)}\n`)
  writeDurably(folder, 'state.bin', serialize({ ...newState(), ledger: newLedger(randomBytes(32), share) }))
  writeDurably(
    folder,
    'identity.json',
    JSON.stringify({ member, admin_key: adminKey, public_key: hex(publicOf('ed25519', seed)) }),
  )
}

export function openFolder(folder) {
  const { member, admin_key: adminKey } = JSON.parse(readFileSync(join(folder, 'identity.json')))
  return {
    member,
    federation: unhex(adminKey),
    identity: unhex(readFileSync(join(folder, 'identity.key'), 'utf8').trim()),
    state: deserialize(readFileSync(join(folder, 'state.bin'))),
    store: (state) => writeDurably(folder, 'state.bin', serialize(state)),
  }
}
