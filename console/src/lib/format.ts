// Owns numbers, sizes and times as people read them. Pure; the locale is fixed, so that columns line up everywhere.

const MISSING = "–";
const DECIMAL = ["", " k", " M", " G", " T", " P", " E"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Three significant digits at most, no trailing zeros: 1.5, 12.3, 145. */
function three(value: number): string {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

function known(value: number | null | undefined): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** 1536 → "1.5 KiB". The powers are of 1024, as in redis.conf's `kb`, `mb`, `gb`: what is typed as 512 mb is shown as 512 MiB. */
export function bytes(value: number | null | undefined): string {
  if (!known(value)) return MISSING;
  let size = value;
  let unit = 0;
  // Without this, 1023.7 would be shown as "1024 KiB".
  while (Math.abs(size) >= 999.5 && unit < BINARY.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(size) : three(size)} ${BINARY[unit]}`;
}

/** 12345678 → "12.3 M". */
export function count(value: number | null | undefined): string {
  if (!known(value)) return MISSING;
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < DECIMAL.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 && Number.isInteger(value) ? size : three(size)}${DECIMAL[unit]}`;
}

/** 12345678 → "12,345,678": where every digit matters. */
export function exact(value: number | null | undefined): string {
  return known(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 3 }) : MISSING;
}

/** 0.8512 → "85.1 %". Only exactly 1 is "100 %". */
export function ratio(value: number | null | undefined): string {
  return known(value) ? percent(value * 100) : MISSING;
}

/** How many times as much: 0.034 → "0.03 ×". */
export function factor(value: number | null | undefined): string {
  return known(value) ? `${value >= 999.5 ? count(value) : three(value)} ×` : MISSING;
}

/** A ratio of hits, which is unknown while nobody reads. */
export const hits = (value: number | null | undefined): string => (known(value) ? ratio(value) : "no reads");

export function percent(value: number | null | undefined): string {
  if (!known(value)) return MISSING;
  if (value > 99.9 && value < 100) return "99.9 %";
  if (value > 0 && value < 0.1) return "< 0.1 %";
  if (Math.abs(value) >= 10_000) return `${count(value)} %`;
  return `${Number(value.toFixed(1))} %`;
}

/** Latencies: 250 → "250 µs", 1500 → "1.5 ms". */
export function micros(value: number | null | undefined): string {
  if (!known(value)) return MISSING;
  if (value < 999.5) return `${three(value)} µs`;
  if (value < 999_500) return `${three(value / 1000)} ms`;
  return `${count(Number((value / 1_000_000).toPrecision(3)))} s`;
}

/** A duration: 93784 s → "1 d 2 h". The two largest units are enough. */
export function duration(seconds: number | null | undefined): string {
  if (!known(seconds)) return MISSING;
  const whole = Math.max(0, Math.floor(seconds));
  const parts: [number, string][] = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([n]) => n > 0)
    .map(([n, unit]) => `${n} ${unit}`)
    .join(" ");
}

/** A key's time to live. */
export function ttl(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "no expiry";
  return ms < 1000 ? `${Math.max(0, Math.round(ms))} ms` : duration(ms / 1000);
}

/** "3 min ago", relative to the given time. */
export function ago(at_ms: number | null | undefined, now_ms: number): string {
  if (!known(at_ms) || at_ms <= 0) return "never";
  const seconds = Math.floor((now_ms - at_ms) / 1000);
  if (seconds < 5) return "just now";
  return `${duration(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}

const two = (n: number): string => String(n).padStart(2, "0");

/** Local time, sortable: 2026-11-21 18:04:09. */
export function clock(at_ms: number | null | undefined): string {
  if (!known(at_ms) || at_ms <= 0) return MISSING;
  const t = new Date(at_ms);
  return (
    `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ` +
    `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`
  );
}

/** A value in a unit of the metrics catalog. */
export function inUnit(value: number | null | undefined, unit: string): string {
  if (!known(value)) return MISSING;
  switch (unit) {
    case "bytes":
      return bytes(value);
    case "bytes/s":
      return `${bytes(value)}/s`;
    case "us":
      return micros(value);
    case "ratio":
      return ratio(value);
    case "factor":
      return factor(value);
    case "state":
      return value > 0 ? "yes" : "no";
    case "percent":
      return percent(value);
    case "ops/s":
      return `${count(value)}/s`;
    default:
      return count(value);
  }
}

/** The unit that suits the largest value of an axis: how much one of it is, and its name. */
export function scaleOf(most: number, unit: string): { one: number; name: string } {
  const stepped = (base: number, names: string[]): { one: number; name: string } => {
    let at = 0;
    while (Math.abs(most) / base ** at >= 999.5 && at < names.length - 1) at += 1;
    return { one: base ** at, name: names[at]! };
  };
  switch (unit) {
    case "bytes":
      return stepped(1024, BINARY.map((name) => ` ${name}`));
    case "bytes/s":
      return stepped(1024, BINARY.map((name) => ` ${name}/s`));
    case "us":
      return stepped(1000, [" µs", " ms", " s"]);
    case "ratio":
      return { one: 0.01, name: " %" };
    case "factor":
      return { one: 1, name: " ×" };
    case "percent":
      return { one: 1, name: " %" };
    case "ops/s":
      return stepped(1000, DECIMAL.map((name) => `${name}/s`));
    default:
      return stepped(1000, DECIMAL);
  }
}

/** A value in a unit of scaleOf, which all marks of an axis share. */
export const inScale = (value: number, { one, name }: { one: number; name: string }): string => `${three(value / one)}${name}`;

/** What a field for a value of this unit takes, in the unit in which the value is shown. */
export const UNIT_HINTS: Record<string, string> = {
  us: "A time: 500 µs, 20 ms, 2 s.",
  ratio: "A share: 80 %.",
  percent: "A share: 80 %.",
  factor: "A factor: 3 ×.",
  state: "yes or no.",
  bytes: "A size: 2 gb.",
  "bytes/s": "A size, each second: 100 mb.",
  "ops/s": "A number, each second: 500, 20 k.",
  count: "A number: 500, 20 k.",
};

/** Reads what `inUnit` shows, and what people write for it; null if it is neither. */
export function parseInUnit(text: string, unit: string): number | null {
  const found = /^\s*(-?\d[\d,]*(?:\.\d+)?|yes|no)\s*(.*?)\s*$/i.exec(text);
  if (!found) return null;
  const number = Number(found[1]!.replaceAll(",", ""));
  const word = found[2]!.toLowerCase();
  switch (unit) {
    case "state":
      return word !== "" ? null : { yes: 1, no: 0, "1": 1, "0": 0 }[found[1]!.toLowerCase()] ?? null;
    case "us": {
      const one = ({ "": 1, us: 1, "µs": 1, ms: 1000, s: 1e6 } as Record<string, number>)[word];
      return one === undefined || Number.isNaN(number) ? null : number * one;
    }
    case "ratio":
      return word === "%" ? number / 100 : word === "" && number >= 0 && number <= 1 ? number : null;
    case "percent":
      return word === "" || word === "%" ? number : null;
    case "factor":
      return ["", "×", "x"].includes(word) ? number : null;
    case "bytes":
    case "bytes/s":
      return parseBytes(text.replace(/\/s\s*$/, ""));
    default: {
      const one = ({ "": 1, k: 1e3, m: 1e6, g: 1e9 } as Record<string, number>)[word.replace(/\s*\/s$/, "")];
      return one === undefined || Number.isNaN(number) ? null : number * one;
    }
  }
}

/** A value as `parseInUnit` reads it back, exactly: for form fields. */
export function fieldInUnit(value: number, unit: string): string {
  switch (unit) {
    case "ratio":
      return `${Number((value * 100).toPrecision(12))} %`;
    case "percent":
      return `${value} %`;
    case "factor":
      return `${value} ×`;
    case "state":
      return value > 0 ? "yes" : "no";
    case "us":
      return value >= 1e6 && Number.isInteger(value / 1e5) ? `${value / 1e6} s` : value >= 1000 && Number.isInteger(value / 100) ? `${value / 1000} ms` : `${value} µs`;
    case "bytes":
    case "bytes/s":
      return bytesField(value);
    default:
      return String(value);
  }
}

const SIZES: Record<string, number> = {
  "": 1, b: 1,
  k: 1000, m: 1e6, g: 1e9, t: 1e12,
  kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3, tb: 1024 ** 4,
  kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, tib: 1024 ** 4,
};

/** "1.5 gb" → 1610612736, in redis.conf's units; null if it is not a size. */
export function parseBytes(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  if (!found) return null;
  const unit = SIZES[found[2]!.toLowerCase()];
  if (unit === undefined) return null;
  const value = Math.round(Number(found[1]) * unit);
  return Number.isSafeInteger(value) ? value : null;
}

/** A number as people write it, in thousands and millions: "75 M", "1.5k", "20,000". */
export function parseCount(text: string): number | null {
  const found = /^\s*(\d[\d,]*(?:\.\d+)?)\s*([kmgt]?)\s*$/i.exec(text);
  if (!found) return null;
  const value = Math.round(Number(found[1]!.replaceAll(",", "")) * 1000 ** " kmgt".indexOf(found[2]!.toLowerCase() || " "));
  return Number.isSafeInteger(value) ? value : null;
}

/** "30%" of a whole, or a size. */
export function parseBytesOf(text: string, whole: number): number | null {
  const share = /^\s*(\d+(?:\.\d+)?)\s*%\s*$/.exec(text);
  if (!share) return parseBytes(text);
  return Number(share[1]) > 100 ? null : Math.floor((whole * Number(share[1])) / 100);
}

/** Like `bytes`, but parses back to the same number if that text is short: for form fields. */
export function bytesField(value: number): string {
  for (const [unit, size] of [["tb", 1024 ** 4], ["gb", 1024 ** 3], ["mb", 1024 ** 2], ["kb", 1024]] as const) {
    if (value >= size && Number.isInteger((value / size) * 100)) return `${value / size} ${unit}`;
  }
  return String(value);
}

/** "7 keys", "1 key". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${exact(n)} ${n === 1 ? one : many}`;
}
