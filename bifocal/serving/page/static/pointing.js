// Where phrases are in an image: the pointing head, from the files that bifocal/serving/site/places.py writes.
import { openEncoder } from "./encoder.js";
import { classWeights, enlarge, enlargement, heatmap, peak, probability } from "./equations.js";
import { splitPhrases } from "./phrases.js";
import { stem } from "./stem.js";
import { tokenize } from "./words.js";

const EPSILON = 1e-6;

export async function openHead(read) {
  const json = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));
  const head = await json("places/head.json");
  const similarities = await (head.encoder ? sentenceSimilarity(head, read) : json("places/classes.json").then(wordSimilarity));

  async function explain(row, sentence) {
    const image = readImage(await read(`places/${row}.bin`), head);
    const found = [];
    for (const phrase of splitPhrases(sentence, head)) {
      found.push({ ...phrase, ...place(image, classWeights(await similarities(phrase.text), head.temperature)) });
    }
    return found;
  }

  function place({ maps, presence }, weights) {
    const known = probability(presence, weights, head);
    if (known < head.threshold) return { point: null, heatmap: null, probability: known };
    const values = heatmap(maps(weights), head.shapes, head);
    return { point: peak(values, head.side), heatmap: picture(values, head), probability: known };
  }

  return { explain };
}

// Class probabilities of an image, and a function from the weights of a phrase to its map at each size.
function readImage(content, { shapes, classes, components }) {
  const presence = new Float32Array(content, 0, classes);
  const scales = new Float32Array(content, 4 * classes, components);
  const ofClasses = new Int8Array(content, 4 * (classes + components), components * classes);
  const ofCells = new Int8Array(content, ofClasses.byteOffset + ofClasses.length);
  const cells = ofCells.length / components;
  const ends = shapes.map((_, number) => shapes.slice(0, number + 1).reduce((total, [height, width]) => total + height * width, 0));

  function maps(weights) {
    const found = new Float64Array(cells);
    for (let component = 0; component < components; component += 1) {
      let product = 0; // the weights sum to 1
      for (let number = 0; number < classes; number += 1) product += (weights[number] - 1 / classes) * ofClasses[component * classes + number];
      for (let cell = 0; cell < cells; cell += 1) found[cell] += product * scales[component] * ofCells[component * cells + cell];
    }
    return ends.map((end, number) => found.slice(ends[number - 1] ?? 0, end));
  }

  return { presence, maps };
}

// Cosines with synonyms and definitions, as SentenceSimilarity of bifocal/onnx/pointing/similarity.py.
async function sentenceSimilarity({ encoder, prompt, synonyms, classes }, read) {
  const [opened, values, scales] = await Promise.all([
    openEncoder(encoder, read),
    read("places/classes.i8").then((content) => new Int8Array(content)),
    read("places/classes.f32").then((content) => new Float32Array(content)),
  ]);
  const dimension = values.length / scales.length;
  const cosine = (vector, row) => {
    let product = 0;
    for (let number = 0; number < dimension; number += 1) product += vector[number] * values[row * dimension + number];
    return product * scales[row];
  };

  return async (phrase) => {
    const total = new Float64Array(classes);
    for (const text of [phrase, prompt.replace("{}", () => phrase)]) {
      const found = await opened.embed(text);
      const norm = Math.max(Math.hypot(...found), EPSILON);
      const vector = found.map((value) => value / norm);
      const nearest = new Float64Array(classes).fill(-Infinity);
      for (const [row, number] of synonyms.entries()) nearest[number] = Math.max(nearest[number], cosine(vector, row));
      for (let number = 0; number < classes; number += 1) total[number] += (nearest[number] + cosine(vector, synonyms.length + number)) / 4;
    }
    return total;
  };
}

// Shares of stems, as WordSimilarity of bifocal/onnx/pointing/similarity.py.
function wordSimilarity({ names, definitions }) {
  const words = (text) => new Set(tokenize(text).map(stem));
  const synonyms = names.map((texts) => texts.map(words));
  const defined = definitions.map(words);
  const counts = new Map();
  for (const [number, definition] of defined.entries()) {
    for (const word of new Set([definition, ...synonyms[number]].flatMap((set) => [...set]))) counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const weight = (set) => [...set].reduce((total, word) => total + Math.log((1 + defined.length) / (1 + (counts.get(word) ?? 0))), 0);
  const common = (one, other) => weight([...one].filter((word) => other.has(word)));

  return async (phrase) => {
    const own = words(phrase);
    const total = Math.max(weight(own), EPSILON);
    return defined.map((definition, number) => {
      const best = Math.max(...synonyms[number].map((synonym) => common(own, synonym) / Math.max(total, weight(synonym))));
      return best / 2 + common(own, definition) / total / 2;
    });
  };
}

// A PNG whose opacity is the blurred cube of the heatmap, so that low values hide nothing.
function picture(values, { side, blur }) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const cubes = values.map((value) => ((value - low) / (high > low ? high - low : 1)) ** 3);
  const gaussian = enlargement(side, side, blur);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(side, side);
  for (const [pixel, value] of enlarge(cubes, [side, side], gaussian, gaussian).entries()) {
    pixels.data.set([255, 255, 255, Math.round(255 * value)], 4 * pixel);
  }
  context.putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}
