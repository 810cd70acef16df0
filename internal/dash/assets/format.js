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
  if (v < 999.5) return `${Math.round(v)} ms`;
  const s = Math.round(v / 1000), min = Math.round(v / 60000), h = Math.round(v / 3600000); // before they are divided: 59.9 of something is one of the next
  if (s < 60) return `${v < 9950 ? (v / 1000).toFixed(1) : s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (min < 1440) return `${Math.floor(min / 60)} h ${min % 60} min`;
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

export const bytes = (v) => v < 10000 ? `${whole.format(v)} bytes` : v < 1e6 ? `${(v / 1e3).toFixed(0)} kB` : v < 1e9 ? `${(v / 1e6).toFixed(1)} MB` : `${(v / 1e9).toFixed(1)} GB`;

// ahead is how far the server's clock is ahead of this machine's, as far as is known: what the
// server has dated is as old as its clock says.
let ahead = 0;
export const serverSays = (now) => { ahead = now - Date.now(); };
export const ago = (t) => `${ms(Math.max(1000, Date.now() + ahead - t))} ago`;
export const when = (t) => new Date(t).toLocaleString("sv-SE");
export const clock = (t) => new Date(t).toLocaleTimeString("en-GB");
