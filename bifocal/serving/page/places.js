// Where the phrases of the query are in the picture of the dialog.
import { explain } from "./api.js";
import { element, number, t } from "./texts.js";

const byId = (id) => document.getElementById(id);

export function clearPhrases() {
  byId("heatmaps").replaceChildren();
  byId("sentence").replaceChildren();
  byId("where").textContent = "";
  byId("heat").hidden = true;
}

export async function showPhrases(id, sentence, explains, signal) {
  if (!explains) {
    byId("where").textContent = t("where_none");
    return;
  }
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
  const layers = phrases.map((phrase, place) => (phrase.point ? drawHeatmap(phrase, place) : element("div", "")));
  byId("heatmaps").replaceChildren(...layers);
  byId("heat").hidden = !phrases.some((phrase) => phrase.point);
  const parts = [];
  let end = 0;
  let alone = null;
  const buttons = phrases.map((phrase, place) => {
    const button = element("button", phrase.text, phrase.point ? `color-${place}` : "absent");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      alone = alone === place ? null : place;
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

function drawHeatmap(phrase, place) {
  const layer = document.createElement("div");
  const heat = element("div", "", `heat color-${place}`);
  heat.style.maskImage = heat.style.webkitMaskImage = `url(${phrase.heatmap})`;
  const ring = element("div", "", `ring color-${place}`);
  ring.style.left = `${100 * phrase.point[0]}%`;
  ring.style.top = `${100 * phrase.point[1]}%`;
  layer.append(heat, ring);
  return layer;
}

export function describe(phrase) {
  if (!phrase.point) return t("where_absent", { phrase: phrase.text });
  const [x, y] = phrase.point.map((value) => number(Math.round(100 * value)));
  return t((phrase.probability ?? 1) < 0.5 ? "where_perhaps" : "where_one", { phrase: phrase.text, x, y });
}
