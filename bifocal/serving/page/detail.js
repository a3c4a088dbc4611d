// The dialog of one result: where the phrases of the query are in its image.
import { explain, showThumbnail } from "./api.js";
import { number, t } from "./texts.js";

const SIDE = 1024;
const byId = (id) => document.getElementById(id);
const dialog = byId("detail");
const image = dialog.querySelector("img");
let request = new AbortController();

export function showDetail(result, sentence, explains) {
  request.abort();
  request = new AbortController();
  byId("detail-title").textContent = result.captions[0] ?? result.id;
  byId("heatmaps").replaceChildren();
  byId("sentence").replaceChildren();
  byId("where").textContent = "";
  byId("region").textContent = result.box ? t("region", center(result.box)) : "";
  byId("picture").querySelector(".region")?.remove();
  if (result.box) byId("picture").append(regionBox(result.box));
  byId("captions").replaceChildren(...result.captions.map((caption) => element("li", caption)));
  const entries = Object.entries(result.metadata).filter(([, value]) => value !== null);
  byId("metadata").replaceChildren(...entries.flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
  image.removeAttribute("src");
  image.alt = result.captions[0] ?? result.id;
  byId("picture").hidden = !result.has_image;
  if (!dialog.open) dialog.showModal();
  if (!result.has_image) return;
  showThumbnail(image, result.id, SIDE).catch(() => { byId("picture").hidden = true; });
  if (!sentence) return;
  if (explains) showHeatmaps(result.id, sentence);
  else byId("where").textContent = t("where_none");
}

// A rectangle over an image; over the central square of an image that fills a square.
export function regionBox([x0, y0, x1, y1], image) {
  const shorter = image ? Math.min(image.naturalWidth, image.naturalHeight) : 1;
  const [width, height] = image ? [image.naturalWidth / shorter, image.naturalHeight / shorter] : [1, 1];
  const box = element("span", "");
  box.className = "region";
  box.style.left = `${100 * (x0 * width + (1 - width) / 2)}%`;
  box.style.top = `${100 * (y0 * height + (1 - height) / 2)}%`;
  box.style.width = `${100 * (x1 - x0) * width}%`;
  box.style.height = `${100 * (y1 - y0) * height}%`;
  return box;
}

const center = ([x0, y0, x1, y1]) => ({ x: number(Math.round(50 * (x0 + x1))), y: number(Math.round(50 * (y0 + y1))) });

async function showHeatmaps(id, sentence) {
  const { signal } = request;
  byId("sentence").textContent = sentence;
  byId("where").textContent = t("where_loading");
  try {
    const { phrases } = await explain(id, sentence, signal);
    if (!signal.aborted) drawPhrases(sentence, phrases);
  } catch (error) {
    if (!signal.aborted) byId("where").textContent = error.message;
  }
}

function drawPhrases(sentence, phrases) {
  // Positions count code points, as Python does.
  const letters = [...sentence];
  // A phrase without a point is probably not in the image.
  const layers = phrases.map((phrase, number) => (phrase.point ? drawHeatmap(phrase, number) : element("div", "")));
  byId("heatmaps").replaceChildren(...layers);
  const parts = [];
  let end = 0;
  let alone = null;
  const buttons = phrases.map((phrase, number) => {
    const button = element("button", phrase.text);
    button.type = "button";
    button.className = phrase.point ? `color-${number}` : "absent";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      alone = alone === number ? null : number;
      for (const [other, layer] of layers.entries()) {
        const visible = alone === null || alone === other;
        layer.hidden = !visible;
        buttons[other].setAttribute("aria-pressed", String(visible));
      }
      byId("where").textContent = alone === null ? summary(phrases) : describe(phrase);
    });
    parts.push(letters.slice(end, phrase.start).join(""), button);
    end = phrase.end;
    return button;
  });
  parts.push(letters.slice(end).join(""));
  byId("sentence").replaceChildren(...parts);
  byId("where").textContent = phrases.length === 1 ? describe(phrases[0]) : summary(phrases);
}

function summary(phrases) {
  const missing = phrases.filter((phrase) => !phrase.point).map(describe);
  return [...(missing.length < phrases.length ? [t("where")] : []), ...missing].join(" ");
}

function drawHeatmap(phrase, number) {
  const layer = document.createElement("div");
  const heat = element("div", "");
  heat.className = `heat color-${number}`;
  heat.style.maskImage = heat.style.webkitMaskImage = `url(${phrase.heatmap})`;
  const ring = element("div", "");
  ring.className = `ring color-${number}`;
  ring.style.left = `${100 * phrase.point[0]}%`;
  ring.style.top = `${100 * phrase.point[1]}%`;
  layer.append(heat, ring);
  return layer;
}

function describe(phrase) {
  if (!phrase.point) return t("where_absent", { phrase: phrase.text });
  const [x, y] = phrase.point.map((value) => number(Math.round(100 * value)));
  const guess = t("where_one", { phrase: phrase.text, x, y });
  if (typeof phrase.probability !== "number") return guess;
  return `${guess} ${t("where_probability", { percent: number(Math.round(100 * phrase.probability)) })}`;
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}
