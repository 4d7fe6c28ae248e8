import { expect, test } from "vitest";
import { ago, bytes, bytesField, count, duration, exact, factor, fieldInUnit, inScale, inUnit, micros, parseBytes, parseBytesOf, parseCount, parseInUnit, percent, plural, ratio, scaleOf, ttl } from "./format";

test("sizes have three digits at most and the unit that fits", () => {
  expect([0, 1, 999, 1000, 1024, 1536, 1023 * 1024, 8 * 1024 ** 3, 2 ** 60].map(bytes)).toEqual([
    "0 B", "1 B", "999 B", "0.98 KiB", "1 KiB", "1.5 KiB", "1 MiB", "8 GiB", "1 EiB",
  ]);
});

test("what is not known is a dash, never NaN or 0", () => {
  for (const format of [bytes, count, exact, ratio, micros, duration, percent]) {
    expect([null, undefined, NaN, Infinity].map(format)).toEqual(["–", "–", "–", "–"]);
  }
});

test("counts from nothing to more than there are", () => {
  expect([0, 7, 999, 1000, 12_345_678, 3.14159, 1e21, -2500].map(count)).toEqual(["0", "7", "999", "1 k", "12.3 M", "3.14", "1000 E", "-2.5 k"]);
});

test("only everything is 100 %, and only nothing is 0 %", () => {
  expect([0, 0.0002, 0.8512, 0.99999, 1, 2.5, 2 ** 40].map(ratio)).toEqual(["0 %", "< 0.1 %", "85.1 %", "99.9 %", "100 %", "250 %", "110 T %"]);
});

test("latencies change their unit", () => {
  expect([0, 41, 999, 1500, 2_000_000, 2 ** 50].map(micros)).toEqual(["0 µs", "41 µs", "999 µs", "1.5 ms", "2 s", "1.13 G s"]);
});

test("how long, in the two largest units", () => {
  expect([0, 59, 60, 3661, 93_784, 864_000].map(duration)).toEqual(["0 s", "59 s", "1 min", "1 h 1 min", "1 d 2 h", "10 d"]);
  expect([null, 400, 90_000].map(ttl)).toEqual(["no expiry", "400 ms", "1 min 30 s"]);
  expect([0, 997_000, 940_000, 1_000_000].map((at) => ago(at, 1_000_000))).toEqual(["never", "just now", "1 min ago", "just now"]);
});

test("units of the catalog", () => {
  expect(inUnit(0.5, "ratio")).toBe("50 %");
  expect(inUnit(2048, "bytes/s")).toBe("2 KiB/s");
  expect(inUnit(1500, "ops/s")).toBe("1.5 k/s");
  expect(inUnit(1500, "us")).toBe("1.5 ms");
  expect(inUnit(42, "something new")).toBe("42");
});

test("sizes are read in redis.conf's units", () => {
  expect(["1gb", " 1.5 GB ", "1g", "100", "2tb", "512 mb"].map(parseBytes)).toEqual([1024 ** 3, 1.5 * 1024 ** 3, 1e9, 100, 2 * 1024 ** 4, 512 * 1024 ** 2]);
  expect(["", "gb", "1 xb", "-1", "1e9", "99999999 tb"].map(parseBytes)).toEqual([null, null, null, null, null, null]);
  expect(parseBytesOf("30 %", 1000)).toBe(300);
  expect(parseBytesOf("101%", 1000)).toBeNull();
  expect(parseBytesOf("1kb", 1000)).toBe(1024);
});

test("counts are read in thousands and millions", () => {
  expect(["75 M", "1.5k", "20,000", "0", "2g", "1 T"].map(parseCount)).toEqual([75e6, 1500, 20_000, 0, 2e9, 1e12]);
  expect(["", "M", "1 x", "-1", "1e9", "99999999 t", ",5"].map(parseCount)).toEqual([null, null, null, null, null, null, null]);
});

test("a field of a form reads back as the same number", () => {
  for (const value of [1, 1023, 1024, 1.5 * 1024 ** 3, 7 * 1024 ** 4, 123_456_789]) expect(parseBytes(bytesField(value))).toBe(value);
});

test("plurals", () => {
  expect([plural(1, "key"), plural(0, "key"), plural(12_000, "key")]).toEqual(["1 key", "0 keys", "12,000 keys"]);
});

test("a ratio that is no share is a factor, and what is or is not so is a word", () => {
  expect([0.034, 1, 2.5, 1234].map(factor)).toEqual(["0.03 ×", "1 ×", "2.5 ×", "1.23 k ×"]);
  expect([inUnit(0.034, "factor"), inUnit(0.862, "ratio"), inUnit(1, "state"), inUnit(0, "state")]).toEqual(["0.03 ×", "86.2 %", "yes", "no"]);
  expect(inScale(3, scaleOf(4, "factor"))).toBe("3 ×");
});

test("a field has a value in the unit in which it is shown, and it comes back", () => {
  for (const [value, unit, text] of [
    [0.5, "ratio", "50 %"], [0.862, "ratio", "86.2 %"], [85, "percent", "85 %"], [3, "factor", "3 ×"], [1, "state", "yes"], [10_000, "us", "10 ms"],
    [1_000_000, "us", "1 s"], [30_000_000, "us", "30 s"], [250, "us", "250 µs"], [2 * 1024 ** 3, "bytes", "2 gb"], [1500, "ops/s", "1500"], [7, "count", "7"],
  ] as const) {
    expect(fieldInUnit(value, unit)).toBe(text);
    expect(parseInUnit(text, unit)).toBe(value);
  }
  expect([parseInUnit("0.5", "ratio"), parseInUnit("3", "factor"), parseInUnit("3 x", "factor"), parseInUnit("20 k", "ops/s"), parseInUnit("2", "us")]).toEqual([0.5, 3, 3, 20_000, 2]);
  for (const [text, unit] of [["85", "ratio"], ["much", "count"], ["", "percent"], ["3 mb", "us"], ["50 %", "factor"], ["perhaps", "state"]] as const) expect(parseInUnit(text, unit)).toBeNull();
});
