/** An upload's making, and what a decryptor does with boxes and shares (wire: Uploads, Boxes, Reveals). No state. */
import { Fault, merkle, sha256 } from './encoding.mjs'
import * as k from './keys.mjs'
import { CHUNK_ELEMENTS, deal, masked, shareIsBelowP } from './ring.mjs'

const SHARE = 36
const piece = (bytes, size, index) => bytes.subarray(size * index, size * (index + 1))

/**
 * Mask a vector and deal the shares of its masks. `keys`: `masks` and `boxes` of the sequence, by peer.
 * Returns the Upload's fields with a header that is not signed yet, the `chunks`, and the member's own `shares` (null: it does not decrypt).
 */
export function seal(facts, member, context, keys, vector, bits, draw) {
  const { decryptors, manifest } = facts
  const near = facts.neighbours(member)
  const own = draw.bytes(32, 'b_u')
  const salt = draw.bytes(32, 'salt')
  const edges = near.map((peer) => k.maskSeed(keys.masks.get(peer), context, ...[member, peer].sort()))
  const added = [own, ...edges.filter((_, i) => near[i] > member)]
  const subtracted = edges.filter((_, i) => near[i] < member)
  const chunks = Array.from({ length: Math.ceil(vector.length / CHUNK_ELEMENTS) }, (_, index) => {
    const at = index * CHUNK_ELEMENTS
    return masked(vector.slice(at, at + CHUNK_ELEMENTS), bits, at, added, subtracted)
  })
  const secrets = [own, ...edges]
  const width = 9 * secrets.length
  const flat = draw.coefficients(width * (manifest.t - 1))
  const coefficients = Array.from({ length: manifest.t - 1 }, (_, degree) => flat.slice(width * degree, width * (degree + 1)))
  const shares = deal(secrets, decryptors.length, coefficients)
  const commitments = secrets.map((secret, i) => facts.commitment(context, member, i, secret))
  const rows = decryptors.map((decryptor, at) =>
    Buffer.concat(shares[at].map((share, i) => k.commitShare(context, member, decryptor, i, share))),
  )
  const boxes = decryptors.map((decryptor, at) => {
    if (decryptor === member) return Buffer.alloc(0)
    const key = k.boxKey(keys.boxes.get(decryptor), context, salt, member, decryptor)
    return k.sealBox(key, context, Buffer.concat(shares[at]))
  })
  const chunk_digests = chunks.map(sha256)
  const header = {
    context,
    member,
    salt,
    chunk_root: merkle(chunk_digests).root,
    commitment_root: merkle([Buffer.concat(commitments), ...rows]).root,
    box_root: merkle(boxes).root,
  }
  const place = facts.position(member)
  return { header, chunk_digests, commitments, rows, boxes, chunks, shares: place < 0 ? null : Buffer.concat(shares[place]) }
}

/** The shares in a box to `member`; null if it does not open, or holds others than the dealer committed to (BOX-8). */
export function openShares(facts, member, keys, { header, box, row }) {
  const { context, salt, member: dealer } = header
  try {
    const shares = k.openBox(k.boxKey(keys.boxes.get(dealer), context, salt, dealer, member), context, box)
    const count = 1 + facts.manifest.k
    if (shares.length !== SHARE * count || !shareIsBelowP(shares)) return null
    const isCommitted = (_, i) => facts.isShareCommitted(context, dealer, member, i, piece(shares, SHARE, i), row)
    return Array.from({ length: count }).every(isCommitted) ? shares : null
  } catch (error) {
    if (error instanceof Fault) return null
    throw error
  }
}

/** One run for each dealer that stays: the held shares of b_u, and of its masks with members that do not (wire: Reveals). */
export const runsOf = (facts, held, staying) =>
  staying
    .filter((dealer) => held.has(dealer))
    .map((dealer) => Buffer.concat(facts.due(dealer, staying).map((i) => piece(held.get(dealer), SHARE, i))))
