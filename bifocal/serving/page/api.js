// Requests to the service, with the key of this browser tab. Errors have a status and a reason.
const KEY = "bifocal-key";
const CLIENT = "bifocal-client";
const SIDES = [256, 512, 1024]; // of thumbnails

// A random name of this tab: the service answers it by the same release each time.
function client() {
  let name = sessionStorage.getItem(CLIENT);
  if (!name) {
    name = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(CLIENT, name);
  }
  return name;
}

export class ServiceError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

async function send(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, [CLIENT]: client(), ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(`api/v1/${path}`, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, error.message);
  }
  if (answer.ok) return answer;
  let reason = answer.statusText;
  try {
    reason = (await answer.json()).error;
  } catch {
    // a proxy's answer is not JSON
  }
  throw new ServiceError(answer.status, reason);
}

const post = (path, body, signal) =>
  send(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal })
    .then((answer) => answer.json());

export const info = () => send("info").then((answer) => answer.json());
export const item = (id) => send(`item?${new URLSearchParams({ id })}`).then((answer) => answer.json());
export const browse = (page, signal) => post("browse", page, signal);
export const correct = (item, text, right) =>
  send("correction", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ item, text, right }) });
export const explain = (id, text, signal) => post("explain", { id, text }, signal);

export function search(query, file, signal) {
  if (!file) return post("search", query, signal);
  const parameters = new URLSearchParams({ k: query.k, offset: query.offset, where: JSON.stringify(query.where) });
  for (const text of [...(query.text ? [query.text] : []), ...query.plus]) parameters.append("plus", text);
  if (query.group) parameters.set("group", query.group);
  for (const text of query.minus) parameters.append("minus", text);
  const headers = { "content-type": file.type.startsWith("image/") ? file.type : "application/octet-stream" };
  return send(`search/image?${parameters}`, { method: "POST", headers, body: file, signal }).then((answer) => answer.json());
}

// A choice that cannot be noted is no problem of the user.
export const choose = (answer, id) => {
  send("click", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ answer, item: id }), keepalive: true })
    .catch(() => {});
};

// Images come by fetch, because an <img> sends no key.
export async function showThumbnail(image, id, side, signal) {
  const wanted = SIDES.find((known) => known >= side) ?? SIDES.at(-1);
  const answer = await send(`thumbnail?${new URLSearchParams({ id, side: wanted })}`, { signal });
  const address = URL.createObjectURL(await answer.blob());
  image.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
  image.src = address;
}

const fileOf = (id) => `original?${new URLSearchParams({ id })}`;

// A link to the image file; none where a browser would have to send a key.
export const originalAddress = (id) => (sessionStorage.getItem(KEY) ? null : `api/v1/${fileOf(id)}`);
export const download = (id, original) =>
  send(original ? fileOf(id) : `thumbnail?${new URLSearchParams({ id, side: SIDES.at(-1) })}`).then((answer) => answer.blob());
