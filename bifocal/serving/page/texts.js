// Texts of the interface: one JSON file per language.
let texts = {};

export const language = (() => {
  const known = document.documentElement.dataset.languages.split(" ");
  const wanted = navigator.languages.map((tag) => tag.slice(0, 2));
  return wanted.find((tag) => known.includes(tag)) ?? known[0];
})();

export async function loadTexts() {
  texts = await (await fetch(`page/${language}.json`)).json();
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.ariaLabel = element.title = t(element.dataset.label);
  document.getElementById("query").placeholder = t("query");
}

export const t = (name, values = {}) => texts[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

export function languageNames(codes) {
  const names = new Intl.DisplayNames([language], { type: "language" });
  return new Intl.ListFormat(language).format(codes.map((code) => names.of(code)));
}

// An element with a text, which is never read as HTML.
export function element(name, text, kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
}

export const number = (value) => value.toLocaleString(language);
