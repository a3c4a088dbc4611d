// Conditions on metadata, as bifocal/search/filters.py checks them.
const ISO = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?$/;
const DAY = /^\d{4}-\d\d-\d\d$/; // as the end of a range: all of the day
const MILLISECONDS = 24 * 3600 * 1000;
const ZONE = /(?:Z|[+-]\d\d:?\d\d)$/;

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
  const convert = (value) => scalar(column, value);
  if (Array.isArray(condition)) {
    const values = new Set(condition.map(convert));
    return (row) => filtered[row] !== null && values.has(filtered[row]);
  }
  if (condition !== null && typeof condition === "object") {
    const keys = Object.keys(condition);
    if (!keys.length || keys.some((key) => key !== "min" && key !== "max")) throw new RangeError(`a range of '${column.name}' has the keys min and max`);
    const least = "min" in condition ? convert(condition.min) : null;
    const most = "max" in condition ? convert(condition.max) : null;
    const day = column.type === "time" && DAY.test(condition.max);
    return (row) => {
      const value = filtered[row];
      return value !== null && (least === null || value >= least) && (most === null || (day ? value < most + MILLISECONDS : value <= most));
    };
  }
  const wanted = convert(condition);
  return (row) => filtered[row] === wanted;
}

function scalar({ name, type }, value) {
  const fits = type === "text" ? typeof value === "string" : type === "boolean" ? typeof value === "boolean" : true;
  const converted = type === "time" ? time(value) : type === "single" ? Math.fround(value) : value;
  const isNumber = typeof converted === "number" && Number.isFinite(converted) && (type !== "integer" || Number.isInteger(converted));
  if (!fits || (type !== "text" && type !== "boolean" && !isNumber)) {
    throw new RangeError(`condition ${JSON.stringify(value)} does not fit the metadata '${name}' of type ${type}`);
  }
  return converted;
}

// Times without a zone are in UTC.
function time(value) {
  if (typeof value !== "string" || !ISO.test(value)) return Number.NaN;
  return Date.parse(/:/.test(value) && !ZONE.test(value) ? `${value}Z` : value);
}
