// The query in the fragment of the address: a permalink that is never sent to the service or its log.
export const emptyQuery = () => ({ text: "", like: "", plus: [], minus: [], where: {}, mode: "vectors", group: "", item: "" });

export function readAddress(fields = new URLSearchParams(location.hash.slice(1))) {
  const query = emptyQuery();
  for (const name of ["text", "like", "item"]) query[name] = fields.get(name) ?? "";
  for (const name of ["plus", "minus"]) query[name] = fields.getAll(name).filter(Boolean);
  query.mode = fields.get("mode") ?? "vectors";
  query.group = fields.get("group") ?? "";
  try {
    query.where = Object(JSON.parse(fields.get("where") ?? "{}"));
  } catch {
    // a damaged link: search without the filter
  }
  return query;
}

export function addressOf(query) {
  const fields = new URLSearchParams();
  for (const name of ["text", "like", "item"]) if (query[name]) fields.set(name, query[name]);
  for (const name of ["plus", "minus"]) for (const text of query[name]) fields.append(name, text);
  if (Object.keys(query.where).length) fields.set("where", JSON.stringify(query.where));
  if (query.mode !== "vectors") fields.set("mode", query.mode);
  if (query.group) fields.set("group", query.group);
  return `#${fields}`;
}

// A form that was submitted before the scripts were loaded left its fields in the part of the address behind "?".
export function adoptSubmittedForm() {
  const query = readAddress(new URLSearchParams(location.search));
  if (!isEmpty(query)) history.replaceState(null, "", location.pathname + addressOf(query));
}

// Words and regions are searched by a sentence alone.
export const isSentence = (query) => !query.like && !query.plus.length && !query.minus.length;

export const isEmpty = (query) => !query.text && !query.like && !query.plus.length;
