// The dialog of one item: its picture, its facts, and where the phrases of the query are.
import { addressOf, emptyQuery } from "./address.js";
import * as service from "./api.js";
import { clearPhrases, showPhrases } from "./places.js";
import { element, language, number, t } from "./texts.js";

const SIDE = 1024;
const LARGEST = 4; // times its own size
const byId = (id) => document.getElementById(id);
const dialog = byId("detail");
const picture = byId("picture");
const image = dialog.querySelector("img");
let request = new AbortController();
let shown = null;
let originals = false;
let hidden = [];

export const nameOf = (item) => item.captions[0] ?? item.name ?? item.id;

export async function showDetail(result, sentence, information) {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  shown = result;
  originals = information?.originals ?? false;
  hidden = information?.columns.some(({ name }) => name === "split") ? [] : ["split"]; // the training's
  byId("detail-title").textContent = nameOf(result);
  clearPhrases();
  byId("told").textContent = "";
  byId("region").textContent = result.box ? t("region", center(result.box)) : "";
  picture.querySelector(".region")?.remove();
  if (result.box) picture.append(regionBox(result.box));
  byId("correction").hidden = !information?.corrects;
  byId("correct-text").value = sentence;
  byId("captions").replaceChildren(...result.captions.slice(1).map((caption) => element("li", caption)));
  showFacts(result);
  showPicture(result, signal);
  if (!dialog.open) dialog.showModal();
  const described = service.item(result.id).then((item) => { if (!signal.aborted) showFacts({ ...result, bytes: item.bytes }); });
  if (result.has_image && sentence) showPhrases(result.id, sentence, information?.explains, signal);
  return described;
}

function showPicture(item, signal) {
  const address = originals && item.has_image ? service.originalAddress(item.id) : null;
  for (const id of ["download", "copy-image"]) byId(id).hidden = !item.has_image;
  byId("original").hidden = !address;
  if (address) byId("original").href = address;
  picture.hidden = !item.has_image;
  image.removeAttribute("src");
  image.alt = nameOf(item);
  if (!item.has_image) return;
  setShape(item.width, item.height);
  const setItsShape = () => { if (!item.width) setShape(image.naturalWidth, image.naturalHeight); };
  image.addEventListener("load", setItsShape, { once: true, signal });
  service.showThumbnail(image, item.id, SIDE, signal).catch(() => { if (!signal.aborted) picture.hidden = true; });
}

function setShape(width, height) {
  picture.style.setProperty("--ratio", width && height ? width / height : 1);
  picture.style.maxWidth = width ? `${LARGEST * width}px` : "";
}

function showFacts(item) {
  const { folder, date, ...others } = Object.fromEntries(Object.entries(item.metadata).filter(([name, value]) => value !== null && !hidden.includes(name)));
  const size = item.width ? t("pixels", { width: number(item.width), height: number(item.height) }) : "";
  const bytes = item.bytes ? t("kilobytes", { size: number(Math.ceil(item.bytes / 1000)) }) : "";
  const facts = [
    [t("file"), item.name], ["folder", folder && folderLink(folder)], ["date", date && dateText(date)],
    [t("size"), [size, bytes].filter(Boolean).join(", ")], ...Object.entries(others).map(([name, value]) => [name, String(value)]),
    [t("score_name"), item.score?.toFixed(2)],
  ];
  const filled = facts.filter(([, value]) => value);
  byId("facts").replaceChildren(...filled.flatMap(([name, value]) => [element("dt", name), place(value)]));
}

function place(value) {
  const definition = document.createElement("dd");
  definition.append(value);
  return definition;
}

function folderLink(folder) {
  const link = element("a", folder);
  link.href = addressOf({ ...emptyQuery(), where: { folder: [folder] } });
  return link;
}

// A time without a zone is shown as it is.
function dateText(text) {
  const moment = new Date(`${String(text).replace(" ", "T").slice(0, 19)}${String(text).length > 10 ? "Z" : ""}`);
  const style = { dateStyle: "long", ...(String(text).length > 10 ? { timeStyle: "short" } : {}), timeZone: "UTC" };
  return Number.isNaN(moment.getTime()) ? String(text) : moment.toLocaleString(language, style);
}

// A rectangle over an image; over an image that its frame cuts, with the parts of its width and height that are shown.
export function regionBox([x0, y0, x1, y1], [width, height] = [1, 1]) {
  const box = element("span", "", "region");
  box.style.left = `${100 * ((x0 - 0.5) / width + 0.5)}%`;
  box.style.top = `${100 * ((y0 - 0.5) / height + 0.5)}%`;
  box.style.width = `${(100 * (x1 - x0)) / width}%`;
  box.style.height = `${(100 * (y1 - y0)) / height}%`;
  return box;
}

const center = ([x0, y0, x1, y1]) => ({ x: number(Math.round(50 * (x0 + x1))), y: number(Math.round(50 * (y0 + y1))) });

const tell = (name) => { byId("told").textContent = t(name); };

async function download() {
  const file = await service.download(shown.id, originals);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = originals && shown.name ? shown.name : `${(shown.name ?? shown.id).replace(/\.[^./]*$/, "")}.${file.type.split("/")[1]}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copyImage() {
  const canvas = Object.assign(document.createElement("canvas"), { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  const file = new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  await navigator.clipboard.write([new ClipboardItem({ "image/png": file })]);
}

export function listenToDetail(report) {
  const correct = (right) => {
    if (!byId("correction").reportValidity()) return;
    service.correct(shown.id, byId("correct-text").value, right).then(() => tell("corrected"), (error) => {
      if (error.status !== 401) return tell("failed");
      dialog.close();
      return report(error); // asks for the key
    });
  };
  byId("correction").addEventListener("submit", (event) => {
    event.preventDefault();
    correct(true);
  });
  byId("wrong").addEventListener("click", () => correct(false));
  const act = (id, action, done) => byId(id).addEventListener("click", () => action().then(() => done && tell(done), () => tell("failed")));
  act("download", download);
  act("copy-image", copyImage, "copied_image");
  act("copy", async () => navigator.clipboard.writeText(location.href), "copied");
  byId("heat").addEventListener("click", () => {
    const plain = picture.classList.toggle("plain");
    byId("heat").setAttribute("aria-pressed", String(!plain));
  });
}
