// The options of a search: words, modes, groups and filters, each that is in use as a chip, and examples.
import { isEmpty, isSentence } from "./address.js";
import { showThumbnail } from "./api.js";
import { readFilters, showFilters, writeFilters } from "./filters.js";
import { element, languageNames, number, t } from "./texts.js";

const byId = (id) => document.getElementById(id);

// change(changes) asks another query, current() returns the present one.
export function listenToOptions(change, current) {
  const addWord = (kind) => {
    const text = byId("word").value.trim();
    byId("word").focus();
    if (!text) return;
    byId("word").value = "";
    change({ text: byId("query").value.trim(), [kind]: [...current()[kind], text] });
  };
  byId("columns").addEventListener("change", () => change({ where: readFilters(byId("columns")) }));
  for (const name of ["mode", "group"]) byId(name).addEventListener("change", () => change({ [name]: byId(name).value }));
  for (const kind of ["plus", "minus"]) byId(kind).addEventListener("click", () => addWord(kind));
  byId("word").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    addWord("plus");
  });
  document.addEventListener("click", (event) => { if (!event.target.closest("#options, #chips")) byId("options").open = false; });
  byId("options").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    byId("options").open = false;
    byId("options").firstElementChild.focus();
  });
}

export function showOptions(information, change) {
  const about = t("about", { items: number(information.items), model: information.model });
  const languages = information.languages.length ? t("languages", { languages: languageNames(information.languages) }) : "";
  byId("about").textContent = `${about} ${languages}`;
  byId("choose").hidden = !information.accepts_images;
  showChoice("mode", information.modes.map((mode) => [mode, t(`mode_${mode}`)]));
  showChoice("group", [["", t("no_group")], ...information.columns.map(({ name }) => [name, name])]);
  byId("columns").replaceChildren();
  showFilters(byId("columns"), information.columns);
  byId("examples").querySelector("ul").replaceChildren(...information.examples.map((text) => {
    const button = element("button", text);
    button.type = "button";
    button.addEventListener("click", () => change({ text }));
    return item(button);
  }));
}

function showChoice(id, options) {
  byId(id).parentElement.hidden = options.length < 2;
  byId(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

// remove(changes) asks the query without a chip; `file` is the image file to search by.
export function writeOptions(query, file, remove) {
  writeFilters(byId("columns"), query.where);
  byId("mode").value = query.mode;
  byId("mode").disabled = Boolean(file) || !isSentence(query);
  byId("group").value = query.group;
  byId("examples").hidden = !byId("examples").querySelector("button") || !isEmpty(query) || Boolean(file);
  const words = ["plus", "minus"].flatMap((kind) => query[kind].map((text, row) => {
    const others = query[kind].filter((_, other) => other !== row);
    return chip(`${kind === "plus" ? "+" : "−"} ${text}`, () => remove({ [kind]: others }));
  }));
  const filters = Object.entries(query.where).map(([name, condition]) => {
    const { [name]: _, ...others } = query.where;
    return chip(`${name}: ${conditionText(condition)}`, () => remove({ where: others }));
  });
  byId("chips").replaceChildren(...imageChip(query, file, remove), ...words, ...filters);
}

function imageChip(query, file, remove) {
  if (!file && !query.like) return [];
  const preview = document.createElement("img");
  preview.alt = "";
  preview.addEventListener("error", () => preview.remove());
  if (file) {
    preview.src = URL.createObjectURL(file);
    preview.addEventListener("load", () => URL.revokeObjectURL(preview.src), { once: true });
  } else {
    showThumbnail(preview, query.like, 256).catch(() => preview.remove());
  }
  return [chip(file ? t("image", { name: file.name }) : t("like", { name: query.like }), () => remove({ like: "" }), preview)];
}

function chip(text, remove, ...images) {
  const button = element("button", "");
  button.type = "button";
  const sign = element("span", "×");
  sign.ariaHidden = "true";
  button.append(...images, element("span", text), element("span", t("remove"), "unseen"), sign);
  button.addEventListener("click", () => {
    remove();
    byId("query").focus();
  });
  return item(button);
}

function item(button) {
  const entry = document.createElement("li");
  entry.append(button);
  return entry;
}

function conditionText(condition) {
  if (condition && typeof condition === "object" && !Array.isArray(condition)) {
    const { min, max } = condition;
    return min === undefined ? `≤ ${max}` : max === undefined ? `≥ ${min}` : `${min} – ${max}`;
  }
  return [condition].flat().map((value) => (value === "" ? t("no_folder") : String(value))).join(", ");
}
