// The functions of the service's api.js for a static copy: everything is computed here, from the files beside the page.
import { openEncoder } from "./encoder.js";
import { compileFilter } from "./filter.js";
import { openHead } from "./pointing.js";
import { openVectors, rank } from "./ranking.js";

const MODE = "vectors"; // words and regions are searched by the service alone

export class ServiceError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const folder = once(async () => (await (await load("site.json", { cache: "no-cache" })).json()).data);
const collection = once(async () => readCollection(await (await load("collection.json")).json()));
const read = async (name) => (await load(name)).arrayBuffer();
const vectors = once(async () => openVectors(await collection(), read));
const encoder = once(async () => openEncoder((await collection()).encoder, read));
const head = once(() => openHead(read));

// A promise that is kept once it is fulfilled: after a failure, the next search tries again.
function once(start) {
  let promise = null;
  return () => (promise ??= start().catch((error) => {
    promise = null;
    throw error instanceof ServiceError ? error : new ServiceError(0, error.message);
  }));
}

async function load(name, options) {
  const address = name === "site.json" || name.startsWith("vendor/") ? name : `${await folder()}/${name}`;
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`.trim());
  return answer;
}

function readCollection(content) {
  for (const column of content.columns) column.filtered ??= content.metadata[column.name];
  return { ...content, rows: new Map(content.ids.map((id, row) => [id, row])) };
}

export async function info() {
  const { ids, model, languages, columns, examples, max_results, explains } = await collection();
  encoder().catch(() => {}); // load it before the first search, which reports a failure
  const limits = { max_results, max_depth: ids.length, max_image_bytes: 0 };
  const able = { accepts_images: false, explains, originals: false, modes: [MODE] };
  return { model, languages, columns, examples, items: ids.length, ...able, ...limits };
}

export async function item(id) {
  const opened = await collection();
  if (!opened.rows.has(id)) throw new ServiceError(404, "there is no item with this id");
  return describe(opened, opened.rows.get(id));
}

function describe({ ids, captions, metadata, names, widths, heights, pictures }, row) {
  const values = Object.entries(metadata).map(([name, column]) => [name, column[row]]);
  const file = { name: names[row], width: widths[row], height: heights[row], has_image: pictures[row] };
  return { id: ids[row], captions: captions[row], metadata: Object.fromEntries(values), ...file };
}

// The rows are in the order in which the service sends the collection.
export async function browse({ where, k, offset }) {
  const opened = await collection();
  const fulfills = filter(where, opened);
  const rows = [...opened.ids.keys()].filter(fulfills);
  const results = rows.slice(offset, offset + k).map((row) => describe(opened, row));
  return { results, items: rows.length, more: offset + k < rows.length };
}

function filter(where, { columns }) {
  try {
    return compileFilter(where, columns);
  } catch (error) {
    throw new ServiceError(400, error.message);
  }
}

export async function search({ text, like, plus, minus, where, k, offset, group, per_group: perGroup = 1, mode = MODE }, _file, signal) {
  const opened = await collection();
  if (mode !== MODE) throw new ServiceError(409, `this collection cannot be searched by ${mode}, but by ${MODE}`);
  if (group && !(group in opened.metadata)) throw new ServiceError(400, `the collection has no metadata '${group}'`);
  const { allowed, excluded, sentences } = check(opened, text, like, plus, minus, where);
  const stored = await vectors();
  const parts = like ? [[stored.vector(excluded), 1]] : [];
  const unknown = [];
  for (const [sentence, sign] of sentences) {
    signal.throwIfAborted();
    const words = (await encoder()).unknown(sentence);
    if (!words) throw new ServiceError(400, `the model knows none of the words of '${sentence.slice(0, 80)}': use words of its captions`);
    unknown.push(...words);
    parts.push([await (await encoder()).embed(sentence), sign]);
  }
  const query = sum(parts, stored.dimension);
  const sentence = !like && !plus.length && !minus.length;
  const { calibration, metadata, group_depth: groupDepth } = opened;
  const groups = { group: group && metadata[group], perGroup, groupDepth };
  const hits = rank(stored, query, { k: k + 1, offset, allowed, sentence, calibration, ...groups });
  signal.throwIfAborted();
  const results = hits.slice(0, k).map(({ row, score, probability }) => {
    const relevance = probability === null ? null : probability >= calibration.relevant ? "relevant" : "maybe";
    return { ...describe(opened, row), score, probability, relevance };
  });
  const found = results.length > 0 && (offset > 0 || (hits[0].found ?? true));
  return { results, found, items: opened.ids.length, more: hits.length > k, model: opened.model, unknown };
}

function check(opened, text, like, plus, minus, where) {
  const { rows, max_words: maxWords } = opened;
  const added = [...(text === undefined ? [] : [text]), ...plus];
  const sentences = [...added.map((sentence) => [sentence, 1]), ...minus.map((sentence) => [sentence, -1])];
  if (!like && !added.length) throw new ServiceError(400, "nothing to search by");
  if (plus.length + minus.length > maxWords) throw new ServiceError(400, `at most ${maxWords} sentences are added and taken away`);
  if (sentences.some(([sentence]) => !sentence.trim())) throw new ServiceError(400, "a sentence is empty");
  if (like && !rows.has(like)) throw new ServiceError(404, "there is no item with the id in like");
  const excluded = like ? rows.get(like) : -1;
  const fulfills = filter(where, opened);
  return { sentences, excluded, allowed: (row) => row !== excluded && fulfills(row) };
}

function sum(parts, dimension) {
  const total = new Float64Array(dimension);
  for (const [vector, sign] of parts) for (const [place, value] of vector.entries()) total[place] += sign * value;
  const norm = Math.hypot(...total);
  if (!(norm > 0 && Number.isFinite(norm))) throw new ServiceError(400, "a vector is zero or not finite: it has no direction");
  return total.map((value) => value / norm);
}

async function thumbnail(id) {
  const { rows } = await collection();
  if (!rows.has(id)) throw new ServiceError(404, "there is no item with this id");
  return `thumbnails/${rows.get(id)}.webp`;
}

export const showThumbnail = async (image, id) => { image.src = `${await folder()}/${await thumbnail(id)}`; };
export const download = async (id) => (await load(await thumbnail(id))).blob();
export const originalAddress = () => null; // the copy has thumbnails alone

export async function explain(id, text, signal) {
  const { rows, explains } = await collection();
  if (!rows.has(id)) throw new ServiceError(404, "there is no item with this id");
  if (!explains) throw new ServiceError(409, "this copy cannot show where a phrase is");
  const phrases = await (await head()).explain(rows.get(id), text);
  signal.throwIfAborted();
  return { id, phrases };
}

export const setKey = () => {}; // a static copy needs no key
