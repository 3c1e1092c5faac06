/** A noisy step's material: a safetensors file of float64 tensors (member: Noise). */
import { COORDINATOR, require_ } from './encoding.mjs'
import { readTensors, rowsOf } from './safetensors.mjs'

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
  let tensors
  try {
    ;({ tensors } = readTensors(bytes))
  } catch {
    refuse(false)
  }
  const shapes = shapesOf(study, step)
  refuse(Object.keys(tensors).sort().join() === Object.keys(shapes).sort().join())
  const read = ([name, shape]) => {
    const tensor = tensors[name]
    refuse(tensor.dtype === 'F64' && tensor.shape.join() === shape.join())
    refuse(tensor.values.every((value) => Math.abs(value) <= LARGEST)) // NaN is not
    return [name, shape.length === 2 ? rowsOf(tensor) : tensor.values]
  }
  return Object.fromEntries(Object.entries(shapes).map(read))
}
