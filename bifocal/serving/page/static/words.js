// Words of a sentence, as bifocal/onnx/text/vocabulary.py finds them.
export const MAX_TOKENS = 100;

const WORD = /[^ '-]+(?:['-][^ '-]+)*/g;

export function tokenize(sentence) {
  const text = sentence.normalize("NFKC").replaceAll("\u2019", "'").toLowerCase();
  return text.replace(/[^\p{L}\p{M}\p{N}'-]/gu, " ").match(WORD) ?? [];
}
