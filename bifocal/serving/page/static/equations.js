// Heatmap and probability of a phrase, as bifocal/onnx/pointing/head.py computes them.
const DEVIATION = 1e-6;
const sum = (values) => values.reduce((total, value) => total + value, 0);

export function classWeights(similarities, temperature) {
  const highest = Math.max(...similarities);
  const exponents = Float64Array.from(similarities, (value) => Math.exp((value - highest) / temperature));
  const total = sum(exponents);
  return exponents.map((value) => value / total);
}

export const probability = (presence, weights, { slope, offset }) =>
  1 / (1 + Math.exp(-(slope * Math.log(sum(weights.map((weight, row) => weight * presence[row]))) + offset)));

function standardize(values) {
  const mean = sum(values) / values.length;
  const deviation = Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / values.length);
  return values.map((value) => (value - mean) / (deviation + DEVIATION));
}

// Rows of the matrix that resizes one axis linearly, then smooths it with a Gaussian; sigma is in cells.
export function enlargement(cells, side, sigma) {
  const centers = Array.from({ length: side }, (_, pixel) => (pixel + 0.5) / side);
  const linear = centers.map((center) => {
    const position = Math.min(Math.max(center * cells - 0.5, 0), cells - 1);
    return Float64Array.from({ length: cells }, (_, cell) => Math.max(0, 1 - Math.abs(position - cell)));
  });
  if (!sigma) return linear;
  return centers.map((center) => {
    const weights = centers.map((other) => Math.exp(-(((center - other) * cells) ** 2) / (2 * sigma ** 2)));
    const total = sum(weights);
    const row = new Float64Array(cells);
    for (const [pixel, weight] of weights.entries()) for (const [cell, value] of linear[pixel].entries()) row[cell] += (weight * value) / total;
    return row;
  });
}

// The product of rows, an array of shape [h, w], and columns transposed.
export function enlarge(values, [height, width], rows, columns) {
  const partial = Array.from({ length: height }, (_, row) =>
    columns.map((column) => sum(column.map((weight, cell) => weight * values[row * width + cell]))));
  return Float64Array.from(rows.flatMap((row) => columns.map((_, pixel) => sum(row.map((weight, cell) => weight * partial[cell][pixel])))));
}

export function heatmap(maps, shapes, { side, sigma, center }) {
  const total = new Float64Array(side * side);
  for (const [number, [height, width]] of shapes.entries()) {
    const [rows, columns] = [height, width].map((cells) => enlargement(cells, side, sigma));
    const enlarged = standardize(enlarge(standardize(maps[number]), [height, width], rows, columns));
    for (const [pixel, value] of enlarged.entries()) total[pixel] += value;
  }
  const axis = Array.from({ length: side }, (_, pixel) => ((2 * (pixel + 0.5)) / side - 1) ** 2);
  return standardize(total).map((value, pixel) => value - center * (axis[Math.floor(pixel / side)] + axis[pixel % side]));
}

// The highest value's position as fractions of the sides; ties: nearest their center.
export function peak(values, side) {
  const highest = Math.max(...values);
  const best = [...values.keys()].filter((pixel) => values[pixel] === highest).map((pixel) => [Math.floor(pixel / side), pixel % side]);
  const means = [0, 1].map((axis) => sum(best.map((place) => place[axis])) / best.length);
  const distance = (place) => (place[0] - means[0]) ** 2 + (place[1] - means[1]) ** 2;
  const [row, column] = best.reduce((nearest, place) => (distance(place) < distance(nearest) ? place : nearest));
  return [(column + 0.5) / side, (row + 0.5) / side];
}
