// Pages of the answer to one query, loaded one after another.
import { isEmpty, isSentence } from "./address.js";
import * as service from "./api.js";

const PAGE = 60;

export class Feed {
  #request = new AbortController();
  #loading = false;
  loaded = 0;
  unknown = []; // words that the model does not know
  found = true; // whether the first result reaches the threshold of the calibration
  items = 0; // in the collection, or of those that fulfill the filter while it is browsed
  more = true;

  constructor(query, file) {
    this.query = query;
    this.file = file;
    this.browses = isEmpty(query) && !file;
  }

  stop() {
    this.#request.abort();
  }

  // The next results; null while others are loaded, after the last ones, and after a stop.
  async next(most) {
    if (this.#loading || !this.more) return null;
    this.#loading = true;
    const { signal } = this.#request;
    try {
      const answer = await this.#load(Math.min(PAGE, most), signal);
      if (signal.aborted) return null;
      if (!this.loaded && !this.browses) ({ found: this.found, unknown: this.unknown } = answer);
      this.loaded += answer.results.length;
      this.items = answer.items;
      this.more = answer.more && answer.results.length > 0;
      return answer.results.map((result) => ({ ...result, answer: answer.answer }));
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    } finally {
      this.#loading = false;
    }
  }

  #load(k, signal) {
    const { text, like, plus, minus, where, group, mode } = this.query;
    const page = { where, k, offset: this.loaded };
    if (this.browses) return service.browse(page, signal);
    const body = { plus, minus, ...page };
    if (text) body.text = text;
    if (like) body.like = like;
    if (group) body.group = group;
    if (mode !== "vectors" && text && !this.file && isSentence(this.query)) body.mode = mode;
    return service.search(body, this.file, signal);
  }
}
