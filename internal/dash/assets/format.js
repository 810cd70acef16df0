// How numbers are written. What is not known is a dash, never 0.
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const known = (v) => v !== null && v !== undefined && !Number.isNaN(v);
export const count = (v) => !known(v) ? "–" : Math.abs(v) < 10000 ? whole.format(v) : compact.format(v);
export const rate = (v) => !known(v) ? "–" : v === 0 ? "0" : v < 10 ? v.toFixed(1) : count(v);
export const percent = (v) => !known(v) ? "–" : `${(100 * v).toFixed(v > 0 && v < 0.1 ? 1 : 0)} %`;

export function ms(v) {
  if (!known(v)) return "–";
  if (v === 0) return "0";
  if (v < 1) return `${v.toFixed(2)} ms`;
  if (v < 10) return `${v.toFixed(1)} ms`;
  if (v < 1000) return `${Math.round(v)} ms`;
  const s = v / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.round(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.round(s / 3600) % 24} h`;
}

export const bytes = (v) => v < 10000 ? `${whole.format(v)} bytes` : v < 1e6 ? `${(v / 1e3).toFixed(0)} kB` : v < 1e9 ? `${(v / 1e6).toFixed(1)} MB` : `${(v / 1e9).toFixed(1)} GB`;

export const ago = (t) => `${ms(Math.max(1000, Date.now() - t))} ago`;
export const when = (t) => new Date(t).toLocaleString("sv-SE");
export const clock = (t) => new Date(t).toLocaleTimeString("en-GB");
