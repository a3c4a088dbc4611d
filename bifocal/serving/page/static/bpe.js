// Ids of a sentence's tokens, padded to one length, as the Python package tokenizers computes them for CLIP: byte pair encoding whose
// words end with "</w>".
// White space of Python, which differs from that of JavaScript.
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;
const QUOTES = { "‘": "'", "’": "'", "“": '"', "”": '"' };

// Characters that stand for bytes: printable ones for themselves, the others from U+0100 on.
const BYTES = (() => {
  const signs = [];
  let spare = 256;
  for (let byte = 0; byte < 256; byte += 1) {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    signs.push(String.fromCharCode(printable ? byte : spare++));
  }
  return signs;
})();

export class BytePairs {
  constructor({ vocabulary, merges, special, split, quotes, before, after, max_tokens: limit, padding }) {
    Object.assign(this, { quotes, before, after, padding });
    this.ids = new Map(Object.entries(vocabulary));
    this.ranks = new Map(merges.map(([one, other], rank) => [`${one} ${other}`, rank]));
    this.special = new Map(Object.entries(special));
    this.length = limit;
    this.split = new RegExp(split.replaceAll("\\s", "\\p{White_Space}"), "gu");
  }

  encode(sentence) {
    // Special tokens are found before the text is normalized.
    const names = [...this.special.keys()].map((name) => name.replace(/[^\w]/g, "\\$&"));
    const parts = sentence.split(SPACES).filter(Boolean).join(" ").split(new RegExp(`(${names.join("|")})`));
    const ids = parts.flatMap((part) => (this.special.has(part) ? [this.special.get(part)] : this.words(part).flatMap((word) => this.pieces(word))));
    const kept = [...this.before, ...ids.slice(0, this.length - this.before.length - this.after.length), ...this.after];
    return [...kept, ...Array(this.length - kept.length).fill(this.padding)];
  }

  words(part) {
    let text = part.normalize("NFC");
    if (this.quotes) text = text.replace(/[‘’“”]/g, (quote) => QUOTES[quote]);
    text = [...text].map((sign) => sign.toLowerCase()).join(""); // one by one: no final sigma
    return text.match(this.split) ?? [];
  }

  pieces(word) {
    const parts = [...new TextEncoder().encode(word)].map((byte) => BYTES[byte]);
    parts[parts.length - 1] += "</w>";
    const rank = (at) => this.ranks.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity;
    while (parts.length > 1) {
      let best = 0;
      for (let at = 1; at < parts.length - 1; at += 1) if (rank(at) < rank(best)) best = at;
      if (rank(best) === Infinity) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    return parts.map((piece) => this.ids.get(piece));
  }
}
