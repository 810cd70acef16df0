// History is an hour of some series, which grows at its end.
export class History {
  constructor({ end_ms, step_ms, series }) {
    this.end = end_ms;
    this.step = step_ms;
    this.series = series;
    this.begun = false;
  }

  // add takes over values read at a time. It reports whether there is a new point, and is
  // true the first time.
  add(at, values) {
    const slot = Math.floor(at / this.step) * this.step;
    const steps = Math.round((slot - this.end) / this.step);
    const first = !this.begun;
    this.begun = true;
    if (steps <= 0) return first;
    for (const [name, list] of Object.entries(this.series)) {
      for (let i = 1; i < Math.min(steps, list.length); i++) list.push(null);
      list.push(values[name] ?? null);
      list.splice(0, list.length - this.length(list));
    }
    this.end = slot;
    return true;
  }

  length() {
    return Math.round(3600000 / this.step);
  }
}
