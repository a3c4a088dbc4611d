// The English stemmer of Snowball 3, as the Python package snowballstemmer has it ("Porter2"): snowballstem.org/algorithms.
const WHOLE = new Map(Object.entries({
  andes: "andes", atlas: "atlas", bias: "bias", cosmos: "cosmos", howe: "howe", news: "news", sky: "sky", skies: "sky",
  skis: "ski", early: "earli", gently: "gentl", idly: "idl", only: "onli", singly: "singl", ugly: "ugli",
}));
const REGION = /^.*?[aeiouy][^aeiouy]/s;
const FIRST_REGION = /^(?:arsen|commun|emerg|gener|inter|later|organ|past|univers)/;
const SHORT_END = /(?:[^aeiouy][aeiouy][^aeiouywxY]|^[aeiouy][^aeiouy]|past)$/s;
const DERIVED = { // suffixes of step 2, the longest first
  iveness: "ive", fulness: "ful", ousness: "ous", ational: "ate", ization: "ize", lessli: "less", biliti: "ble", tional: "tion",
  fulli: "ful", ousli: "ous", entli: "ent", aliti: "al", iviti: "ive", alism: "al", ation: "ate", ogist: "og",
  abli: "able", alli: "al", anci: "ance", enci: "ence", izer: "ize", ator: "ate", bli: "ble", ogi: "og", li: "",
};
const FORMED = { // suffixes of step 3
  ational: "ate", tional: "tion", icate: "ic", ative: "", alize: "al", iciti: "ic", ical: "ic", ness: "", ful: "",
};
const ENDINGS = ["ement", "ance", "ence", "able", "ible", "ment", "ate", "ive", "ize", "iti", "ism", "ion", "ous", "ant", "ent", "al", "er", "ic"];
const ASTRAL = /[\u{10000}-\u{10ffff}]/gu;

export function stem(word) {
  const astral = word.match(ASTRAL); // the algorithm counts code points: one private character stands for each
  return astral ? stemCharacters(word.replace(ASTRAL, "\ue000")).replace(/\ue000/g, () => astral.shift()) : stemCharacters(word);
}

function stemCharacters(given) {
  if (WHOLE.has(given)) return WHOLE.get(given);
  if (given.length < 3) return given;
  const letters = [...given.replace(/^'/, "").replace(/^y/, "Y")];
  for (const [place, letter] of letters.entries()) if (letters[place + 1] === "y" && "aeiouy".includes(letter)) letters[place + 1] = "Y";
  const word = letters.join("");
  const first = (FIRST_REGION.exec(word) ?? REGION.exec(word))?.[0].length ?? word.length;
  const second = first + (REGION.exec(word.slice(first))?.[0].length ?? word.length - first);
  const steps = [plural, past, lastY, derivation, formation, ending, lastLetter];
  return steps.reduce((text, step) => step(text, first, second), word).replaceAll("Y", "y");
}

function plural(given) {
  const word = given.replace(/'(?:s'?)?$/, "");
  if (word.endsWith("sses")) return word.slice(0, -2);
  if (/ie[ds]$/.test(word)) return word.slice(0, word.length > 4 ? -2 : -1);
  return /(?:ss|us)$/.test(word) ? word : word.replace(/([aeiouy].+)s$/s, "$1");
}

function past(word, first) {
  const [, base, suffix] = /^(.*?)(eedly|ingly|edly|eed|ing|ed)$/s.exec(word) ?? [];
  if (base === undefined) return word;
  if (suffix.startsWith("eed")) return base.length < first || /^(?:succ|proc|exc)$/.test(base) ? word : `${base}ee`;
  if (suffix === "ing") {
    if (/^(?:even|cann|inn|earr|herr|out)$/.test(base)) return word;
    if (/^[^aeiouy]y$/.test(base)) return `${base[0]}ie`;
  }
  if (!/[aeiouy]/.test(base)) return word;
  if (/(?:at|bl|iz)$/.test(base)) return `${base}e`;
  if (/(?:bb|dd|ff|gg|mm|nn|pp|rr|tt)$/.test(base)) return /^[aeo]..$/.test(base) ? base : base.slice(0, -1);
  return base.length === first && SHORT_END.test(base) ? `${base}e` : base;
}

const lastY = (word) => word.replace(/(.[^aeiouy])[yY]$/s, "$1i");

function derivation(word, first) {
  const suffix = Object.keys(DERIVED).find((end) => word.endsWith(end));
  if (!suffix) return word;
  const base = word.slice(0, -suffix.length);
  if (base.length < first || (suffix === "ogi" && !base.endsWith("l")) || (suffix === "li" && !/[cdeghkmnrt]$/.test(base))) return word;
  return base + DERIVED[suffix];
}

function formation(word, first, second) {
  const suffix = Object.keys(FORMED).find((end) => word.endsWith(end));
  if (!suffix) return word;
  const base = word.slice(0, -suffix.length);
  return base.length < (suffix === "ative" ? Math.max(first, second) : first) ? word : base + FORMED[suffix];
}

function ending(word, first, second) {
  const suffix = ENDINGS.find((end) => word.endsWith(end));
  if (!suffix) return word;
  const base = word.slice(0, -suffix.length);
  return base.length < second || (suffix === "ion" && !/[st]$/.test(base)) ? word : base;
}

function lastLetter(word, first, second) {
  const base = word.slice(0, -1);
  const removed = word.endsWith("e")
    ? base.length >= second || (base.length >= first && !SHORT_END.test(base))
    : word.endsWith("ll") && base.length >= second;
  return removed ? base : word;
}
