// Pictures in rows of one height, each in its own shape. Only the rows near the screen are in the document.
const GAP = 6;
const SHAPES = [0.4, 3.2]; // narrower and wider pictures are cut

export const shape = ({ width, height }) => Math.min(Math.max(width && height ? width / height : 1, SHAPES[0]), SHAPES[1]);

// Rows of items with these shapes in a width: each row is as high as makes it fill the width, and at most `most`.
// Without `complete`, items that do not fill a row have none yet.
export function layOut(shapes, width, most, complete, first = 0, top = 0) {
  const rows = [];
  let start = first;
  let sum = 0;
  for (let number = first; number < shapes.length; number += 1) {
    sum += shapes[number];
    const height = Math.round((width - GAP * (number - start)) / sum);
    const last = complete && number === shapes.length - 1;
    if (height > most && !last) continue;
    const row = { first: start, end: number + 1, top, height: Math.min(height, most), lefts: [] };
    let left = 0;
    for (let place = start; place <= number; place += 1) {
      row.lefts.push(Math.round(left));
      left += shapes[place] * row.height + GAP;
    }
    row.lefts.push(height > most ? Math.round(left) : width + GAP);
    rows.push(row);
    top += row.height + GAP;
    start = number + 1;
    sum = 0;
  }
  return rows;
}

export class Gallery {
  #list;
  #card;
  #more;
  #shapes = [];
  #items = [];
  #rows = [];
  #nodes = new Map();
  #width = 0;
  #complete = false;
  #frame = 0;

  // card(item, width) returns the content of a list item, and a function that stops its loading; more() is called near the end.
  constructor(list, card, more) {
    this.#list = list;
    this.#card = card;
    this.#more = more;
    addEventListener("scroll", () => this.#plan(), { passive: true });
    new ResizeObserver(() => this.#resize()).observe(list);
    list.addEventListener("keydown", (event) => this.#move(event));
  }

  get items() {
    return this.#items;
  }

  clear() {
    for (const number of [...this.#nodes.keys()]) this.#remove(number);
    this.#items = [];
    this.#shapes = [];
    this.#rows = [];
    this.#complete = false;
    this.#list.style.height = "0";
  }

  append(items, complete) {
    this.#items.push(...items);
    this.#shapes.push(...items.map(shape));
    this.#complete = complete;
    this.#layOut(this.#rows);
    this.#draw();
  }

  focus(number) {
    const row = this.#rows[this.#rowOf(number)];
    if (!row) return;
    this.#draw(row);
    this.#nodes.get(number).node.firstElementChild.focus();
  }

  #layOut(kept) {
    const last = kept.at(-1);
    const most = Math.round(Math.min(230, Math.max(130, this.#width / 5)));
    const top = last ? last.top + last.height + GAP : 0;
    this.#rows = [...kept, ...layOut(this.#shapes, this.#width, most, this.#complete, last?.end ?? 0, top)];
    const end = this.#rows.at(-1);
    this.#list.style.height = `${end ? end.top + end.height : 0}px`;
  }

  #resize() {
    const width = this.#list.clientWidth;
    if (width === this.#width || !width) return;
    const offset = this.#offset();
    const shown = this.#rows[this.#rowAt(-offset)];
    const place = shown && shown.top + offset;
    this.#width = width;
    for (const number of [...this.#nodes.keys()]) this.#remove(number);
    this.#layOut([]);
    // The first row on the screen stays where it was.
    if (shown && offset < 0) scrollBy(0, this.#rows[this.#rowOf(shown.first)].top + this.#offset() - place);
    this.#draw();
  }

  #offset() {
    return this.#list.getBoundingClientRect().top;
  }

  #plan() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #search(isBefore) {
    let [low, high] = [0, this.#rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(this.#rows[middle])) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #rowAt(y) {
    return this.#search((row) => row.top + row.height < y);
  }

  #rowOf(number) {
    return this.#search((row) => row.end <= number);
  }

  // Also draws a row that is to have the focus.
  #draw(wanted) {
    const top = -this.#offset();
    const rows = this.#rows.slice(this.#rowAt(top - innerHeight), this.#rowAt(top + 2 * innerHeight) + 1);
    if (wanted && !rows.includes(wanted)) rows.push(wanted);
    const focused = this.#list.querySelector(":focus")?.parentElement;
    const numbers = new Set(rows.flatMap((row) => row.lefts.slice(1).map((_, place) => row.first + place)));
    for (const [number, { node }] of [...this.#nodes]) if (!numbers.has(number) && node !== focused) this.#remove(number);
    for (const row of rows) for (let number = row.first; number < row.end; number += 1) if (!this.#nodes.has(number)) this.#add(number, row);
    const end = this.#rows.at(-1);
    if (this.#items.length && !this.#complete && (!end || end.top < top + 3 * innerHeight)) this.#more();
  }

  #add(number, row) {
    const [left, next] = row.lefts.slice(number - row.first);
    const node = document.createElement("li");
    const width = next - left - GAP;
    Object.assign(node.style, { left: `${left}px`, top: `${row.top}px`, width: `${width}px`, height: `${row.height}px` });
    node.setAttribute("aria-posinset", number + 1);
    node.setAttribute("aria-setsize", this.#complete ? this.#items.length : -1);
    const { content, stop } = this.#card(this.#items[number], Math.max(width, row.height));
    node.append(content);
    const following = Math.min(...[...this.#nodes.keys()].filter((other) => other > number));
    this.#list.insertBefore(node, this.#nodes.get(following)?.node ?? null);
    this.#nodes.set(number, { node, stop });
  }

  #remove(number) {
    const { node, stop } = this.#nodes.get(number);
    stop();
    node.remove();
    this.#nodes.delete(number);
  }

  #move(event) {
    const number = event.target.parentElement.getAttribute("aria-posinset") - 1;
    const place = this.#rowOf(number);
    const middle = (row, of) => row.lefts[of - row.first] + row.lefts[of - row.first + 1];
    const beside = (row) => {
      if (!row) return number;
      const distance = (other) => Math.abs(middle(row, other) - middle(this.#rows[place], number));
      const others = row.lefts.slice(1).map((_, column) => row.first + column);
      return others.reduce((best, other) => (distance(other) < distance(best) ? other : best));
    };
    const targets = {
      ArrowLeft: () => number - 1, ArrowRight: () => number + 1, Home: () => 0, End: () => this.#rows.at(-1).end - 1,
      ArrowUp: () => beside(this.#rows[place - 1]), ArrowDown: () => beside(this.#rows[place + 1]),
    };
    if (!targets[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.focus(Math.max(0, targets[event.key]()));
  }
}
