// Inputs of the text encoder from a sentence, as bifocal/onnx/text/sentences.py computes them. A reader returns [data, shape] pairs.
import { BytePairs } from "./bpe.js";
import { stem } from "./stem.js";
import { MAX_TOKENS, tokenize } from "./words.js";
import { WordPiece } from "./wordpiece.js";

const integers = (values) => BigInt64Array.from(values, BigInt);
const idsAndLength = (ids) => [[integers(ids), [1, ids.length]], [integers([ids.length]), [1]]];

class Words {
  constructor({ words, buckets }) {
    this.count = words.length;
    this.buckets = buckets;
    this.ids = new Map(words.map((word, id) => [word, id]));
  }

  read(sentence) {
    const tokens = tokenize(sentence).slice(0, MAX_TOKENS);
    return idsAndLength(tokens.length ? tokens.map((token) => this.ids.get(token) ?? this.other(token)) : [1]);
  }

  known(tokens) {
    return tokens.map((token) => [token, this.buckets > 0 || this.ids.has(token)]);
  }

  other(token) {
    return this.buckets ? this.count + (crc32(new TextEncoder().encode(token)) % this.buckets) : 1;
  }
}

export function crc32(bytes) {
  let rest = 0xffffffff;
  for (const byte of bytes) {
    rest ^= byte;
    for (let bit = 0; bit < 8; bit += 1) rest = (rest >>> 1) ^ (rest & 1 ? 0xedb88320 : 0);
  }
  return ~rest >>> 0;
}

class TermWeights {
  constructor({ terms, idf, stop_words: stopWords, normalize }) {
    Object.assign(this, { idf, normalize });
    this.rows = new Map(terms.map((term, row) => [term, row]));
    this.stopWords = new Set(stopWords);
  }

  read(sentence) {
    const tokens = tokenize(sentence).slice(0, this.normalize ? MAX_TOKENS : undefined);
    const vector = new Float32Array(this.idf.length);
    for (const token of tokens) {
      const row = this.stopWords.has(token) ? undefined : this.rows.get(stem(token));
      if (row !== undefined) vector[row] += 1;
    }
    for (const [row, count] of vector.entries()) vector[row] = count * this.idf[row];
    const norm = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
    if (this.normalize && norm) for (const [row, value] of vector.entries()) vector[row] = value / norm;
    return [[vector, [1, vector.length]], [integers([1]), [1]]];
  }

  known(tokens) {
    return tokens.filter((token) => !this.stopWords.has(token)).map((token) => [token, this.rows.has(stem(token))]);
  }
}

class Subwords {
  constructor(description) {
    this.tokenizer = new WordPiece(description);
  }

  read(sentence) {
    return idsAndLength(this.tokenizer.encode(sentence));
  }
}

class Tokens {
  constructor(description) {
    this.tokenizer = new BytePairs(description);
  }

  read(sentence) {
    const ids = this.tokenizer.encode(sentence);
    return [[Int32Array.from(ids), [1, ids.length]]];
  }
}

const READERS = { words: Words, terms: TermWeights, subwords: Subwords, tokens: Tokens };

export const openReaders = (descriptions) => descriptions.map((description) => new READERS[description.kind](description));

// Words that no reader knows; none if one of them reads any text, null if they know no word of the sentence.
export function unknownWords(readers, sentence) {
  if (readers.some((reader) => !reader.known)) return [];
  const known = new Map();
  for (const reader of readers) {
    for (const [token, isKnown] of reader.known(tokenize(sentence))) known.set(token, known.get(token) || isKnown);
  }
  const words = [...known];
  return words.some(([, isKnown]) => isKnown) ? words.filter(([, isKnown]) => !isKnown).map(([token]) => token) : null;
}
