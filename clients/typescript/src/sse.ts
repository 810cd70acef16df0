import { WeirError } from "./errors.js";

/** One server-sent event. */
export interface Frame {
  /** Empty if it has none. */
  id: string;
  event: string;
  data: string;
}

/** The most characters of one event. The server's have 8 MiB and a record at most. */
const maxChars = 256 << 20;

/** Splits a stream of bytes into server-sent events. */
export class FrameReader {
  /** The latest hint of how long to wait before connecting again, in ms; 0 before there is one. */
  retryMs = 0;
  readonly #decoder = new TextDecoder();
  #line = ""; // what has come of the line
  #cr = false; // the last character was \r, so a \n belongs to it
  #id = "";
  #event = "";
  #data: string[] = [];
  #size = 0;

  /** Takes a piece of the stream and returns the events that end in it. Throws a WeirError for one without end. */
  push(bytes: Uint8Array): Frame[] {
    const text = this.#decoder.decode(bytes, { stream: true });
    const frames: Frame[] = [];
    let from = 0;
    if (this.#cr && text !== "") {
      this.#cr = false;
      from = text.startsWith("\n") ? 1 : 0;
    }
    const ends = /\r\n|\r|\n/g;
    ends.lastIndex = from;
    for (let m = ends.exec(text); m; m = ends.exec(text)) {
      this.#cr = m[0] === "\r" && ends.lastIndex === text.length;
      this.#take(this.#line + text.slice(from, m.index), frames);
      this.#line = "";
      from = ends.lastIndex;
    }
    this.#line += text.slice(from);
    if (this.#line.length + this.#size > maxChars) {
      throw new WeirError("unexpected_answer", 200, `an event of the stream has more than ${maxChars} characters`);
    }
    return frames;
  }

  #take(line: string, frames: Frame[]): void {
    if (line === "") {
      if (this.#data.length > 0) {
        frames.push({ id: this.#id, event: this.#event, data: this.#data.join("\n") });
      }
      this.#id = this.#event = "";
      this.#data = [];
      this.#size = 0;
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "data") {
      this.#data.push(value);
      this.#size += value.length;
    } else if (name === "event") {
      this.#event = value;
    } else if (name === "id" && !value.includes("\0")) {
      this.#id = value;
    } else if (name === "retry" && /^\d+$/.test(value)) {
      // A server can neither make a client spin nor send it away for good.
      this.retryMs = Math.min(Math.max(Number(value), 50), 60_000);
    }
  }
}
