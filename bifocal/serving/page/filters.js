// Inputs for the metadata of the collection.
import { t } from "./texts.js";

const BOXES = 30; // of a column with more values, one is typed

function labeled(text, input) {
  const label = document.createElement("label");
  label.append(input, text);
  return label;
}

function field(type, name, role) {
  const input = document.createElement("input");
  Object.assign(input, { type, name });
  input.dataset.role = role;
  return input;
}

export function showFilters(container, columns) {
  for (const column of columns) {
    const set = document.createElement("fieldset");
    Object.assign(set.dataset, { column: column.name, kind: column.kind });
    const legend = document.createElement("legend");
    legend.textContent = column.name;
    set.append(legend);
    const values = column.kind === "boolean" ? ["true", "false"] : column.values.length > BOXES ? [] : column.values;
    for (const value of values) {
      const box = field("checkbox", value, "value");
      set.append(labeled(column.kind === "boolean" ? t(value === "true" ? "yes" : "no") : value || t("no_folder"), box));
    }
    if (column.kind === "number" || column.kind === "time") {
      const type = column.kind === "number" ? "number" : "date";
      for (const [role, text] of [["min", "from"], ["max", "to"]]) {
        const input = field(type, role, role);
        if (type === "number") input.step = "any";
        set.append(labeled(t(text, { name: column.name }), input));
      }
    } else if (!values.length) {
      const input = field("text", "text", "text");
      const known = document.createElement("datalist");
      known.id = `values-${column.name}`;
      input.setAttribute("list", known.id);
      known.append(...column.values.map((value) => new Option(value)));
      set.append(labeled(column.name, input), known);
    }
    container.append(set);
  }
}

export function readFilters(container) {
  const where = {};
  for (const set of container.children) {
    const { column, kind } = set.dataset;
    const inputs = [...set.querySelectorAll("input")];
    const checked = inputs.filter((input) => input.checked).map((input) => input.name);
    const filled = inputs.filter((input) => input.type !== "checkbox" && input.value !== "");
    if (kind === "boolean" && checked.length === 1) where[column] = checked[0] === "true";
    else if (kind !== "boolean" && checked.length) where[column] = checked;
    else if (filled.length && filled[0].dataset.role === "text") where[column] = filled[0].value;
    else if (filled.length) {
      // A whole number that Number would round is sent as its text.
      const exact = (text) => !/^-?\d+$/.test(text) || Number.isSafeInteger(Number(text));
      const value = (input) => (kind === "number" && exact(input.value) ? Number(input.value) : input.value);
      where[column] = Object.fromEntries(filled.map((input) => [input.dataset.role, value(input)]));
    }
  }
  return where;
}

export function writeFilters(container, where) {
  for (const set of container.children) {
    const condition = where[set.dataset.column];
    const values = [condition].flat().map(String);
    for (const input of set.querySelectorAll("input")) {
      if (input.type === "checkbox") input.checked = condition !== undefined && values.includes(input.name);
      else if (input.dataset.role === "text") input.value = typeof condition === "string" ? condition : "";
      else input.value = String(condition?.[input.dataset.role] ?? "").slice(0, input.type === "date" ? 10 : undefined);
    }
  }
}
