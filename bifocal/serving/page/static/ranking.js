// Exact search in int8 vectors, with the biases and the calibration of the index: bifocal/search/index/index.py and calibration.py.
const DEPTH = 10;

export async function openVectors({ ids, dimension, corrected }, read) {
  const [values, scales, bias] = await Promise.all([read("vectors.i8"), read("scales.f32"), corrected ? read("bias.f32") : null]);
  const stored = { count: ids.length, dimension, values: new Int8Array(values), scales: new Float32Array(scales) };
  stored.bias = bias && new Float32Array(bias);
  stored.vector = (row) => Float64Array.from(stored.values.subarray(row * dimension, (row + 1) * dimension), (value) => value * stored.scales[row]);
  return stored;
}

// Group: the value of each row; each value has at most one result. Null for no groups.
export function rank(stored, query, { k, offset, allowed, corrected, calibration, group }) {
  const { count, dimension, values, scales, bias } = stored;
  const scores = new Float64Array(count);
  const keys = new Float64Array(count);
  const rows = [];
  for (let row = 0, place = 0; row < count; row += 1) {
    let product = 0;
    for (let number = 0; number < dimension; number += 1, place += 1) product += query[number] * values[place];
    scores[row] = product * scales[row];
    keys[row] = scores[row] + (corrected && bias ? bias[row] : 0);
    if (allowed(row)) rows.push(row);
  }
  rows.sort((one, other) => keys[other] - keys[one] || one - other);
  let hits = rows.map((row) => ({ row, score: scores[row], probability: null }));
  if (calibration && corrected) {
    const others = rows.slice(1, DEPTH);
    const reference = others.length ? others.reduce((total, row) => total + keys[row], 0) / others.length : keys[rows[0]];
    for (const hit of hits) {
      const logit = calibration.intercept + calibration.score * keys[hit.row] + calibration.margin * (keys[hit.row] - reference);
      hit.probability = 1 / (1 + Math.exp(-logit));
    }
  }
  return (group ? firstOfEach(hits, group) : hits).slice(offset, offset + k);
}

function firstOfEach(hits, group) {
  const seen = new Set();
  return hits.filter(({ row }) => !seen.has(group[row]) && seen.add(group[row]));
}
