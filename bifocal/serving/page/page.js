// The page: its state is the query of the address; every change writes the address, and every address is a search.
import { addressOf, adoptSubmittedForm, emptyQuery, readAddress } from "./address.js";
import * as service from "./api.js";
import { listenToDetail, nameOf, regionBox, showDetail } from "./detail.js";
import { Feed } from "./feed.js";
import { Gallery, shape } from "./gallery.js";
import { listenToInputs } from "./inputs.js";
import { listenToOptions, showOptions, writeOptions } from "./options.js";
import { element, loadTexts, number, t } from "./texts.js";

const byId = (id) => document.getElementById(id);
const list = byId("results");
const dialog = byId("detail");
let information = null;
let query = emptyQuery();
let file = null;
let feed = null;
let failed = false;
let sure = true;
let opened = null;
let written = "";

function go(changes, state = null) {
  if ("text" in changes) writeText(changes.text);
  query = { ...query, ...changes };
  const address = addressOf(query);
  if (address !== (location.hash || "#")) history.pushState(state, "", address === "#" ? location.pathname : address);
  return refresh();
}

const changeQuery = (changes) => go({ item: "", ...changes });

async function refresh() {
  query = readAddress();
  // The address changes without the text: what the user has typed since stays.
  if (query.text !== written) writeText(query.text);
  writeOptions(query, file, removeChip);
  showTitle();
  const address = addressOf({ ...query, item: "" });
  if (feed?.address !== address || feed.file !== file || failed) await search(address);
  await openItem();
}

function removeChip(changes) {
  if ("like" in changes) file = null;
  changeQuery(changes);
}

async function search(address) {
  feed?.stop();
  feed = Object.assign(new Feed(query, file), { address });
  failed = false;
  byId("problem").textContent = "";
  byId("key-form").hidden = true;
  if (!feed.browses) byId("status").textContent = t("searching");
  list.setAttribute("aria-busy", "true");
  await loadMore();
}

async function loadMore() {
  const current = feed;
  if (failed) return;
  byId("more").hidden = true;
  try {
    const first = !current.loaded;
    const results = await current.next(information.max_results);
    if (!results) return;
    if (first) start(current, results);
    gallery.append(results, !current.more);
  } catch (error) {
    if (current !== feed) return;
    failed = true;
    if (!current.loaded) gallery.clear();
    byId("more").hidden = !current.loaded;
    report(error);
  }
  if (current === feed) list.removeAttribute("aria-busy");
}

function start(current, results) {
  gallery.clear();
  // Where no result is found for certain, the status says so once.
  sure = results.some(({ relevance }) => relevance === "found");
  scrollTo(0, 0);
  const items = number(current.items);
  const dated = information.columns.some(({ name }) => name === "date");
  const name = !current.loaded ? "nothing" : current.browses ? (dated ? "newest" : "all") : !current.found ? "closest" : sure ? "found" : results[0]?.relevance ? "perhaps" : "shown";
  const words = current.unknown.length ? ` ${t("unknown", { words: current.unknown.join(", ") })}` : "";
  byId("status").textContent = t(name, { items }) + words;
  byId("status").className = name === "closest" || name === "nothing" ? "none" : "";
}

function report(error) {
  const size = number(Math.floor((information?.max_image_bytes ?? 0) / 1e6));
  const known = [400, 401, 404, 413, 415, 429, 503].includes(error.status);
  const name = error.status === 0 ? "error_network" : error.status === -1 ? "error_too_large" : known ? `error_${error.status}` : "error_other";
  byId("status").textContent = "";
  byId("problem").textContent = t(name, { reason: error.message, size });
  byId("key-form").hidden = error.status !== 401;
}

function card(item, side) {
  const content = element("a", "", "card");
  const name = nameOf(item);
  content.href = addressOf({ ...query, item: item.id });
  content.dataset.id = item.id;
  content.draggable = false;
  const image = Object.assign(document.createElement("img"), { alt: name, decoding: "async", draggable: false });
  const caption = element("span", name, "caption");
  caption.ariaHidden = "true"; // the text of the image
  content.append(image, caption);
  const notes = [sure && item.relevance === "perhaps" && t("maybe"), item.copies?.length && t("copies", { count: item.copies.length })].filter(Boolean);
  if (notes.length) content.append(element("span", notes.join(", "), "maybe"));
  const cut = item.width && item.height ? item.width / item.height / shape(item) : 1;
  if (item.box) content.append(regionBox(item.box, [Math.min(1, 1 / cut), Math.min(1, cut)]));
  const stopped = new AbortController();
  const replace = () => { if (!stopped.signal.aborted) image.replaceWith(element("span", t("no_image", { name }), "none")); };
  if (item.has_image) service.showThumbnail(image, item.id, side * devicePixelRatio, stopped.signal).catch(replace);
  else replace();
  return { content, stop: () => stopped.abort() };
}

async function openItem() {
  if (!query.item) {
    opened = null;
    dialog.close();
    return;
  }
  if (opened === query.item && dialog.open) return;
  opened = query.item;
  const row = gallery.items.findIndex(({ id }) => id === query.item);
  byId("previous").disabled = row <= 0;
  byId("next").disabled = row < 0 || (row + 1 >= gallery.items.length && !feed.more);
  try {
    const item = row >= 0 ? gallery.items[row] : await service.item(query.item);
    if (item.id !== query.item) return;
    showTitle(nameOf(item));
    await showDetail(item, [query.text, ...query.plus].filter(Boolean).join(", "), information);
  } catch (error) {
    opened = null;
    report(error);
  }
}

async function step(by) {
  const row = gallery.items.findIndex(({ id }) => id === query.item) + by;
  if (!query.item || row < 0) return;
  if (row >= gallery.items.length) await loadMore();
  const item = gallery.items[row];
  if (!item) return;
  history.replaceState(history.state, "", addressOf({ ...query, item: item.id }));
  refresh();
}

function showTitle(item = "") {
  const parts = [query.text, ...query.plus.map((text) => `+ ${text}`), ...query.minus.map((text) => `− ${text}`)];
  if (file) parts.unshift(file.name);
  else if (query.like) parts.unshift(t("like", { name: query.like }));
  document.title = [item, parts.filter(Boolean).join(" "), "Bifocal"].filter(Boolean).join(" – ");
}

function writeText(text) {
  written = text;
  byId("query").value = text;
}

function useFile(chosen) {
  if (!chosen || !information?.accepts_images) return;
  if (chosen.size > information.max_image_bytes) {
    report(new service.ServiceError(-1, ""));
    return;
  }
  file = chosen;
  changeQuery({ text: "", like: "" });
}

async function open() {
  try {
    information = await service.info();
  } catch (error) {
    report(error);
    return;
  }
  showOptions(information, changeQuery);
  await refresh();
}

function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    failed ||= query.text === byId("query").value.trim(); // the same query again asks again
    byId("options").open = false;
    changeQuery({ text: byId("query").value.trim() });
  });
  byId("query").addEventListener("search", () => { if (!byId("query").value && query.text) changeQuery({ text: "" }); });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    service.setKey(byId("key").value);
    byId("problem").textContent = "";
    byId("key-form").hidden = true;
    open();
  });
  list.addEventListener("click", (event) => {
    const chosen = event.target.closest(".card");
    if (!chosen || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const item = gallery.items.find(({ id }) => id === chosen.dataset.id);
    if (item.answer) service.choose(item.answer, item.id);
    go({ item: item.id }, { opened: true });
  });
  byId("more").addEventListener("click", () => {
    failed = false;
    byId("problem").textContent = "";
    loadMore();
  });
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("close").addEventListener("click", () => dialog.close());
  byId("similar").addEventListener("click", () => {
    file = null;
    changeQuery({ text: "", plus: [], minus: [], like: query.item });
  });
  dialog.addEventListener("close", () => {
    if (!query.item) return;
    gallery.focus(gallery.items.findIndex(({ id }) => id === query.item));
    if (history.state?.opened) history.back();
    else go({ item: "" });
  });
  addEventListener("popstate", refresh);
  listenToDetail(report);
  listenToOptions(changeQuery, () => query);
  listenToInputs(useFile, () => information?.accepts_images, step);
}

const gallery = new Gallery(list, card, loadMore);
adoptSubmittedForm();
await loadTexts();
listen();
open();
