// Phrases of a sentence, as bifocal/onnx/pointing/phrases.py splits it. Positions count code points, as Python does.
const WORD = /[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*/gu;

export function splitPhrases(query, { separators, articles, max_phrases: most }) {
  const groups = [[]];
  let end = 0;
  for (const { 0: word, index } of query.matchAll(WORD)) {
    const lower = word.toLowerCase();
    const separates = separators.includes(lower);
    if (separates || query.slice(end, index).trim()) groups.push([]);
    end = index + word.length;
    const group = groups.at(-1);
    if (!separates && (group.length || !articles.includes(lower))) group.push([index, end]);
  }
  const spans = groups.filter((group) => group.length).map((group) => [group[0][0], group.at(-1)[1]]);
  const position = (place) => [...query.slice(0, place)].length;
  return (spans.length ? spans : [[0, query.length]]).slice(0, most)
    .map(([first, last]) => ({ text: query.slice(first, last), start: position(first), end: position(last) }));
}
