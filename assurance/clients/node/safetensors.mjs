/** Files of tensors: a noisy step's material (member: Noise), heads and sums (analysis: Results). */
const READERS = {
  F64: (bytes, at) => bytes.readDoubleLE(at),
  I64: (bytes, at) => bytes.readBigInt64LE(at),
}

/** The tensors by name (dtype, shape, flat values) and the metadata. Throws where the file is none. */
export function readTensors(bytes) {
  const length = Number(bytes.readBigUInt64LE())
  const body = bytes.subarray(8 + length)
  const { __metadata__: metadata = {}, ...header } = JSON.parse(bytes.subarray(8, 8 + length))
  const read = ([
    name,
    {
      dtype,
      shape,
      data_offsets: [start, end],
    },
  ]) => {
    const size = 8 * shape.reduce((a, b) => a * b, 1)
    if (!(dtype in READERS) || end - start !== size) throw new RangeError(name)
    return [name, { dtype, shape, values: Array.from({ length: size / 8 }, (_, i) => READERS[dtype](body, start + 8 * i)) }]
  }
  return { tensors: Object.fromEntries(Object.entries(header).map(read)), metadata }
}

/** Flat values as rows. */
export const rowsOf = ({ shape: [rows, columns], values }) =>
  Array.from({ length: rows }, (_, i) => values.slice(i * columns, (i + 1) * columns))
