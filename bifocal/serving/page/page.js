// The page: its state is the query of the address; every change writes the address, and every address is a search.
import { PAGE_SIZE, addressOf, adoptSubmittedForm, emptyQuery, isEmpty, isSentence, readAddress } from "./address.js";
import * as service from "./api.js";
import { regionBox, showDetail } from "./detail.js";
import { readFilters, showFilters, writeFilters } from "./filters.js";
import { languageNames, loadTexts, number, t } from "./texts.js";

const byId = (id) => document.getElementById(id);
const list = byId("results");
const dialog = byId("detail");
let information = null;
let query = emptyQuery();
let searched = null;
let file = null;
let results = [];
let found = true; // whether the first result reaches the threshold of the calibration
let written = "";
let request = new AbortController();

function go(changes) {
  const former = location.hash;
  if ("text" in changes) writeText(changes.text);
  query = { ...query, ...changes };
  const address = addressOf(query);
  if (address === (former || "#")) refresh();
  else location.hash = address;
}

const changeQuery = (changes) => go({ shown: PAGE_SIZE, item: "", ...changes });

async function refresh() {
  query = readAddress();
  writeForm();
  const wanted = addressOf({ ...query, item: "" });
  if (searched?.address !== wanted || searched.file !== file) await search(wanted);
  openItem();
}

async function search(wanted) {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const extends_ = searched && searched.file === file && addressOf({ ...query, item: "", shown: PAGE_SIZE }) === searched.base;
  if (!extends_) results = [];
  searched = null;
  byId("problem").textContent = "";
  byId("key-form").hidden = true;
  byId("more").hidden = true;
  if (isEmpty(query) && !file) {
    list.replaceChildren();
    byId("status").textContent = t("welcome");
    byId("examples").hidden = !information?.examples.length;
    return;
  }
  byId("examples").hidden = true;
  byId("status").textContent = t("searching");
  list.setAttribute("aria-busy", "true");
  const first = results.length;
  try {
    let answer = { more: true };
    while (results.length < query.shown && answer.more) {
      const k = Math.min(query.shown - results.length, information?.max_results ?? PAGE_SIZE);
      const { text, like, plus, minus, where } = query;
      const body = { plus, minus, where, k, offset: results.length };
      if (text) body.text = text;
      if (like) body.like = like;
      if (query.group) body.group = query.group;
      if (query.mode !== "vectors" && text && !file && isSentence(query)) body.mode = query.mode;
      answer = await service.search(body, file, signal);
      if (!results.length) found = answer.found;
      results = [...results, ...answer.results.map((result) => ({ ...result, answer: answer.answer }))];
      if (!answer.results.length) break;
    }
    searched = { address: wanted, base: addressOf({ ...query, item: "", shown: PAGE_SIZE }), file };
    show(first, answer);
  } catch (error) {
    if (signal.aborted) return;
    list.replaceChildren();
    results = [];
    report(error);
  } finally {
    if (!signal.aborted) list.removeAttribute("aria-busy");
  }
}

function show(first, answer) {
  if (!first) list.replaceChildren();
  list.append(...results.slice(first).map(card));
  const counts = { count: number(results.length), items: number(answer.items) };
  byId("status").textContent = results.length ? t(found ? "shown" : "closest", counts) : t("nothing");
  byId("more").hidden = !answer.more;
  if (first) list.children[first]?.firstElementChild.focus();
}

function report(error) {
  const size = number(Math.floor((information?.max_image_bytes ?? 0) / 1e6));
  const known = [400, 401, 404, 413, 415, 429, 503].includes(error.status);
  const name = error.status === 0 ? "error_network" : error.status === -1 ? "error_too_large" : known ? `error_${error.status}` : "error_other";
  byId("status").textContent = "";
  byId("problem").textContent = t(name, { reason: error.message, size });
  byId("key-form").hidden = error.status !== 401;
}

function card(result) {
  const caption = result.captions[0] ?? result.id;
  const score = result.score.toFixed(2);
  const entry = document.createElement("li");
  entry.innerHTML = `<button type="button" class="card"><span class="frame"><img alt=""></span><span class="text"><span class="score"><span></span><span></span></span><span class="caption"></span></span></button>`;
  const button = entry.firstElementChild;
  button.dataset.id = result.id;
  button.setAttribute("aria-label", t("open", { caption, score }));
  button.addEventListener("click", () => {
    if (result.answer) service.choose(result.answer, result.id);
    go({ item: result.id });
  });
  const [value, relevance] = entry.querySelectorAll(".score span");
  value.textContent = t("score", { score });
  if (result.relevance) {
    relevance.textContent = t(result.relevance);
    relevance.className = result.relevance;
  }
  entry.querySelector(".caption").textContent = caption;
  const image = entry.querySelector("img");
  const replace = () => {
    const none = document.createElement("span");
    none.className = "none";
    none.textContent = t("no_image");
    image.replaceWith(none);
  };
  if (result.box) image.addEventListener("load", () => image.after(regionBox(result.box, image)), { once: true });
  if (result.has_image) service.showThumbnail(image, result.id, 256).catch(replace);
  else replace();
  return entry;
}

async function openItem() {
  if (!query.item) {
    dialog.close();
    return;
  }
  const row = results.findIndex((result) => result.id === query.item);
  byId("previous").disabled = row <= 0;
  byId("next").disabled = row < 0 || row + 1 >= results.length;
  try {
    const result = row >= 0 ? results[row] : await service.item(query.item);
    const sentence = [query.text, ...query.plus].filter(Boolean).join(", ");
    showDetail(result, sentence, information?.explains ?? false);
  } catch (error) {
    report(error);
  }
}

function step(by) {
  const row = results.findIndex((result) => result.id === query.item) + by;
  if (query.item && results[row]) go({ item: results[row].id });
}

function writeText(text) {
  written = text;
  byId("query").value = text;
}

function writeForm() {
  // The address changes without the text: what the user has typed since stays.
  if (query.text !== written) writeText(query.text);
  writeFilters(byId("columns"), query.where);
  if (Object.keys(query.where).length) byId("filters").open = true;
  byId("mode").value = query.mode;
  byId("mode").disabled = Boolean(file) || !isSentence(query);
  byId("group").value = query.group;
  byId("words").replaceChildren(...["plus", "minus"].flatMap((kind) => query[kind].map((text, row) => chip(kind, text, row))));
  byId("image-query").hidden = !file && !query.like;
  byId("preview").hidden = !file && !query.like;
  if (file) {
    byId("image-name").textContent = t("image", { name: file.name });
  } else if (query.like) {
    byId("image-name").textContent = t("like", { name: query.like });
    service.showThumbnail(byId("preview"), query.like, 256).catch(() => { byId("preview").hidden = true; });
  }
}

function chip(kind, text, row) {
  const entry = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `${kind === "plus" ? "+" : "−"} ${text} ×`;
  button.setAttribute("aria-label", t(`remove_${kind}`, { text }));
  button.addEventListener("click", () => {
    changeQuery({ [kind]: query[kind].filter((_, other) => other !== row) });
    byId("word").focus();
  });
  entry.append(button);
  return entry;
}

function addWord(kind) {
  const text = byId("word").value.trim();
  if (!text) {
    byId("word").focus();
    return;
  }
  byId("word").value = "";
  changeQuery({ text: byId("query").value.trim(), [kind]: [...query[kind], text] });
}

function useFile(chosen) {
  if (!chosen || information?.accepts_images === false) return;
  if (information && chosen.size > information.max_image_bytes) {
    report(new service.ServiceError(-1, ""));
    return;
  }
  file = chosen;
  const address = URL.createObjectURL(chosen);
  byId("preview").addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
  byId("preview").addEventListener("error", () => { byId("preview").hidden = true; }, { once: true });
  byId("preview").src = address;
  changeQuery({ text: "", like: "", shown: PAGE_SIZE });
}

async function loadInformation() {
  try {
    information = await service.info();
  } catch (error) {
    report(error);
    return false;
  }
  const about = t("about", { items: number(information.items), model: information.model });
  const languages = information.languages.length ? t("languages", { languages: languageNames(information.languages) }) : "";
  byId("about").textContent = `${about} ${languages}`;
  byId("choose").hidden = !information.accepts_images;
  byId("filters").hidden = !information.columns.length;
  byId("columns").replaceChildren();
  showOptions("mode", information.modes.map((mode) => [mode, t(`mode_${mode}`)]));
  showOptions("group", [["", t("no_group")], ...information.columns.map(({ name }) => [name, name])]);
  showFilters(byId("columns"), information.columns);
  byId("examples").querySelector("ul").replaceChildren(...information.examples.map((text) => {
    const entry = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => changeQuery({ text }));
    entry.append(button);
    return entry;
  }));
  return true;
}

function showOptions(id, options) {
  byId(id).parentElement.hidden = options.length < 2;
  byId(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

async function start() {
  if (await loadInformation()) refresh();
}

function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    searched = null;
    changeQuery({ text: byId("query").value.trim() });
  });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    service.setKey(byId("key").value);
    byId("problem").textContent = "";
    byId("key-form").hidden = true;
    start();
  });
  byId("columns").addEventListener("change", () => changeQuery({ where: readFilters(byId("columns")) }));
  byId("mode").addEventListener("change", () => changeQuery({ mode: byId("mode").value }));
  byId("group").addEventListener("change", () => changeQuery({ group: byId("group").value }));
  byId("word").addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      addWord("plus");
    }
  });
  byId("plus").addEventListener("click", () => addWord("plus"));
  byId("minus").addEventListener("click", () => addWord("minus"));
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    useFile(event.target.files[0]);
    event.target.value = "";
  });
  byId("remove-image").addEventListener("click", () => {
    file = null;
    byId("preview").removeAttribute("src");
    changeQuery({ like: "" });
    byId("query").focus();
  });
  byId("more").addEventListener("click", () => go({ shown: results.length + PAGE_SIZE }));
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("close").addEventListener("click", () => dialog.close());
  byId("similar").addEventListener("click", () => {
    file = null;
    changeQuery({ text: "", plus: [], minus: [], like: query.item });
  });
  byId("copy").addEventListener("click", async (event) => {
    await navigator.clipboard?.writeText(location.href);
    event.target.textContent = t("copied");
  });
  dialog.addEventListener("close", () => {
    const opened = query.item;
    byId("copy").textContent = t("copy_link");
    if (!opened) return;
    go({ item: "" });
    list.querySelector(`[data-id="${CSS.escape(opened)}"]`)?.focus();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || dialog.open || event.target.matches("input")) return;
    event.preventDefault();
    byId("query").focus();
  });
  document.addEventListener("paste", (event) => useFile(event.clipboardData.files[0]));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    byId("drop").hidden = information?.accepts_images === false || !event.dataTransfer.types.includes("Files");
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").hidden = true; });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").hidden = true;
    useFile(event.dataTransfer.files[0]);
  });
  addEventListener("hashchange", refresh);
}

adoptSubmittedForm();
await loadTexts();
listen();
start();
