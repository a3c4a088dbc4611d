// Conditions on metadata, as bifocal/search/filters.py checks them.
const ISO = /^\d{4}(-\d\d(-\d\d([T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?)?)?$/;
const NUMBER = /^\s*[-+]?\d[\d.,]*\s*$/;

export function compileFilter(where, columns) {
  const tests = Object.entries(where).map(([name, condition]) => {
    const column = columns.find((known) => known.name === name);
    if (!column) throw new RangeError(`the collection has no metadata '${name}'`);
    return fulfills(column, condition);
  });
  return (row) => tests.every((test) => test(row));
}

function fulfills(column, condition) {
  const { filtered } = column;
  if (condition !== null && typeof condition === "object" && !Array.isArray(condition)) {
    const keys = Object.keys(condition);
    if (!keys.length || keys.some((key) => key !== "min" && key !== "max")) throw new RangeError(`a range of '${column.name}' has the keys min and max`);
    const least = "min" in condition ? limits(column, condition.min)[0] : null;
    const [, most, isOpen] = "max" in condition ? limits(column, condition.max) : [null, null];
    return (row) => {
      const value = filtered[row];
      return value !== null && (least === null || value >= least) && (most === null || (isOpen ? value < most : value <= most));
    };
  }
  const wanted = [condition].flat();
  if (column.type !== "time") {
    const values = new Set(wanted.map((value) => scalar(column, value)));
    return (row) => filtered[row] !== null && values.has(filtered[row]);
  }
  const periods = wanted.map((value) => period(column, value));
  return (row) => filtered[row] !== null && periods.some(([start, end]) => filtered[row] >= start && filtered[row] < end);
}

// The limits of a range that begins or ends with a value, and whether the last one is exclusive.
function limits(column, value) {
  if (column.type === "time") return [...period(column, value), true];
  if (typeof value === "string" && NUMBER.test(value)) throw new RangeError(`a range of the texts '${column.name}' compares letters`);
  const limit = scalar(column.type === "integer" ? { ...column, type: "double" } : column, value);
  return [limit, limit, false];
}

function scalar({ name, type }, value) {
  const fits = type === "text" ? typeof value === "string" : type === "boolean" ? typeof value === "boolean" : true;
  const converted = type === "single" ? Math.fround(value) : value;
  const isNumber = typeof converted === "number" && Number.isFinite(converted) && (type !== "integer" || Number.isInteger(converted));
  if (!fits || (type !== "text" && type !== "boolean" && !isNumber)) {
    throw new RangeError(`condition ${JSON.stringify(value)} does not fit the metadata '${name}' of type ${type}`);
  }
  return converted;
}

// All of a year, a month or a day, or a moment: its start and its exclusive end. Times without a zone are in UTC.
function period({ name }, value) {
  const [found, month, day, clock, zone] = (typeof value === "string" && ISO.exec(value)) || [];
  const start = found ? Date.parse(clock && !zone ? `${value}Z` : value) : Number.NaN;
  if (!Number.isFinite(start)) throw new RangeError(`condition ${JSON.stringify(value)} does not fit the metadata '${name}' of type time`);
  const end = new Date(start);
  if (clock) end.setTime(start + 1);
  else if (day) end.setUTCDate(end.getUTCDate() + 1);
  else if (month) end.setUTCMonth(end.getUTCMonth() + 1);
  else end.setUTCFullYear(end.getUTCFullYear() + 1);
  return [start, end.getTime()];
}
