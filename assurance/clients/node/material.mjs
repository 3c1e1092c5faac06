/** A noisy step's material: a safetensors file of float64 tensors (member: Noise). */
import { COORDINATOR, require_ } from './encoding.mjs'

const LARGEST = 1e6
const refuse = (holds) => require_(holds, 'terms-refused', COORDINATOR)

/** Shapes by name. */
function shapesOf(study, step) {
  if (!study.takesMaterial(step)) return {}
  const [{ l }] = study.statistics
  const centre = study.steps.some(([name]) => name === 'mean') ? { centre: [study.q.dim] } : {}
  return step === 'sum' ? centre : { ...centre, whitening: [l, l], weights: [l, study.q.classes.length], rate: [1] }
}

/** The tensors of a step by name, as lists or lists of rows. Refuses others (NOISE-3). */
export function readMaterial(study, step, bytes) {
  const length = Number(bytes.readBigUInt64LE())
  const body = bytes.subarray(8 + length)
  const { __metadata__, ...header } = JSON.parse(bytes.subarray(8, 8 + length))
  const shapes = shapesOf(study, step)
  refuse(Object.keys(header).sort().join() === Object.keys(shapes).sort().join())
  const read = ([name, shape]) => {
    const { dtype, shape: given, data_offsets: place } = header[name]
    refuse(dtype === 'F64' && given.join() === shape.join() && place[1] - place[0] === 8 * shape.reduce((a, b) => a * b))
    const flat = Array.from({ length: (place[1] - place[0]) / 8 }, (_, i) => body.readDoubleLE(place[0] + 8 * i))
    refuse(flat.every((value) => Math.abs(value) <= LARGEST)) // NaN is not
    const [rows, columns] = shape
    return [name, columns ? Array.from({ length: rows }, (_, i) => flat.slice(i * columns, (i + 1) * columns)) : flat]
  }
  return Object.fromEntries(Object.entries(shapes).map(read))
}
