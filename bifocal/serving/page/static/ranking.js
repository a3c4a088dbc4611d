// Exact search in int8 vectors, as bifocal/search/search.py ranks, corrects and calibrates; the limits come from collection.json.

export async function openVectors({ ids, dimension, corrected }, read) {
  const [values, scales, bias] = await Promise.all([read("vectors.i8"), read("scales.f32"), corrected ? read("bias.f32") : null]);
  const stored = { count: ids.length, dimension, values: new Int8Array(values), scales: new Float32Array(scales) };
  stored.bias = bias && new Float32Array(bias);
  stored.vector = (row) => Float64Array.from(stored.values.subarray(row * dimension, (row + 1) * dimension), (value) => value * stored.scales[row]);
  return stored;
}

// Group: the value of each row, which has at most perGroup results among the first groupDepth. Null for no groups.
export function rank(stored, query, { k, offset, allowed, sentence, calibration, group, perGroup, groupDepth }) {
  const { count, dimension, values, scales, bias } = stored;
  const scores = new Float64Array(count);
  const rows = [];
  for (let row = 0, place = 0; row < count; row += 1) {
    let product = 0;
    for (let number = 0; number < dimension; number += 1, place += 1) product += query[number] * values[place];
    scores[row] = product * scales[row] + (sentence && bias ? bias[row] : 0);
    if (allowed(row)) rows.push(row);
  }
  rows.sort((one, other) => scores[other] - scores[one] || one - other);
  const hits = rows.map((row) => ({ row, score: scores[row], probability: null }));
  if (calibration && sentence) {
    const others = rows.slice(1, calibration.depth);
    const reference = others.length ? others.reduce((total, row) => total + scores[row], 0) / others.length : scores[rows[0]];
    const probability = (level, score) => 1 / (1 + Math.exp(-(level.intercept + level.score * score + level.margin * (score - reference))));
    for (const hit of hits) hit.probability = probability(calibration, hit.score);
    const level = calibration.presence ?? calibration;
    if (hits.length) hits[0].found = probability(level, hits[0].score) >= level.threshold;
  }
  return (group ? limitGroups(hits.slice(0, groupDepth), group, perGroup) : hits).slice(offset, offset + k);
}

function limitGroups(hits, group, perGroup) {
  const seen = new Map();
  return hits.filter(({ row }) => {
    seen.set(group[row], (seen.get(group[row]) ?? 0) + 1);
    return seen.get(group[row]) <= perGroup;
  });
}
