// Ids of a sentence's subwords, as the Python package tokenizers computes them for BERT (BertNormalizer, BertPreTokenizer,
// WordPiece, TemplateProcessing). Its port @huggingface/tokenizers differs for astral Chinese characters and final sigmas, and
// does not truncate.
const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/gu;
const CHINESE = /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;
const WORDS = /[^\s\p{P}$+<=>^`|~]+|[\p{P}$+<=>^`|~]/gu;

export class WordPiece {
  constructor({ vocabulary, special, unknown, prefix, longest, before, after, max_tokens: limit, lower, accents, chinese }) {
    Object.assign(this, { unknown, prefix, longest, before, after, lower, accents, chinese });
    this.ids = new Map(Object.entries(vocabulary));
    this.special = new Map(Object.entries(special));
    this.limit = limit - before.length - after.length;
    const names = [...this.special.keys()].sort((one, other) => other.length - one.length).map((name) => name.replace(/[^\w]/g, "\\$&"));
    this.split = names.length ? new RegExp(`(${names.join("|")})`) : null;
  }

  encode(sentence) {
    const parts = this.split ? sentence.split(this.split) : [sentence];
    const ids = parts.flatMap((part) => (this.special.has(part) ? [this.special.get(part)] : this.words(part).flatMap((word) => this.pieces(word))));
    return [...this.before, ...ids.slice(0, this.limit), ...this.after];
  }

  words(part) {
    let text = part.replace(/[\t\n\r]/g, " ").replace(CONTROL, "");
    if (this.chinese) text = text.replace(CHINESE, " $& ");
    if (this.accents) text = text.normalize("NFD").replace(/\p{Mn}/gu, "");
    if (this.lower) text = [...text].map((sign) => sign.toLowerCase()).join(""); // one by one: no final sigma
    return text.match(WORDS) ?? [];
  }

  pieces(word) {
    const signs = [...word];
    if (signs.length > this.longest) return [this.unknown];
    const found = [];
    for (let start = 0; start < signs.length; ) {
      let end = signs.length;
      const piece = () => (start ? this.prefix : "") + signs.slice(start, end).join("");
      while (end > start && !this.ids.has(piece())) end -= 1;
      if (end === start) return [this.unknown];
      found.push(this.ids.get(piece()));
      start = end;
    }
    return found;
  }
}
