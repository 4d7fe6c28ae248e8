import { expect, test } from "vitest";
import { prettyMsgpack } from "./msgpack";

const raw = (hex: string): Uint8Array => Uint8Array.from(hex.replaceAll(" ", "").match(/../g) ?? [], (byte) => parseInt(byte, 16));
/** The text of one value: that of an array with it alone. */
const one = (hex: string): string | null => prettyMsgpack(raw(`91 ${hex}`))?.replace(/^\[\n {2}/, "").replace(/\n\]$/, "") ?? null;

test("every format", () => {
  for (const [hex, text] of [
    ["00", "0"], ["7f", "127"], ["e0", "-32"], ["ff", "-1"],
    ["c0", "null"], ["c2", "false"], ["c3", "true"],
    ["cc ff", "255"], ["cd 0100", "256"], ["ce ffffffff", "4294967295"], ["cf ffffffffffffffff", "18446744073709551615"],
    ["d0 80", "-128"], ["d1 8000", "-32768"], ["d2 80000000", "-2147483648"], ["d3 8000000000000000", "-9223372036854775808"],
    ["ca 3fc00000", "1.5"], ["ca 40000000", "2.0"], ["cb 3ff199999999999a", "1.1"], ["cb 7ff0000000000000", "Infinity"], ["cb 7e37e43c8800759c", "1e+300"],
    ["a0", '""'], ["a2 c3a9", '"é"'], ["a1 ff", "bytes ff"], ["a3 e280ae", '"\\u202e"'], ["a1 22", '"\\""'],
    ["d9 01 61", '"a"'], ["da 0001 61", '"a"'], ["db 00000001 61", '"a"'],
    ["c4 02 00ff", "bytes 00ff"], ["c5 0001 00", "bytes 00"], ["c6 00000000", "bytes (none)"],
    ["90", "[]"], ["80", "{}"], ["dc 0000", "[]"], ["dd 00000000", "[]"], ["de 0000", "{}"], ["df 00000000", "{}"],
    ["d4 05 aa", "extension 5, bytes aa"], ["d5 05 aabb", "extension 5, bytes aabb"], ["d6 fe 01020304", "extension -2, bytes 01020304"],
    ["d8 01 000102030405060708090a0b0c0d0e0f", "extension 1, bytes 000102030405060708090a0b0c0d0e0f"],
    ["c7 03 07 010203", "extension 7, bytes 010203"], ["c8 0001 07 01", "extension 7, bytes 01"], ["c9 00000001 07 01", "extension 7, bytes 01"],
    ["d6 ff 00000000", "1970-01-01T00:00:00Z"], ["d7 ff 77359400 65f00000", "2024-03-12T07:10:56.5Z"],
    ["c7 0c ff 00000001 ffffffffffffffff", "1969-12-31T23:59:59.000000001Z"], ["c7 02 ff 0000", "extension -1, bytes 0000"],
    ["c7 0c ff 00000001 7fffffffffffffff", "extension -1, bytes 000000017fffffffffffffff"],
  ] as const) expect(one(hex), hex).toBe(text);
});

test("nested maps and arrays are indented, with keys of any kind", () => {
  expect(prettyMsgpack(raw("82 a1 61 92 01 80 03 81 c0 c2"))).toBe('{\n  "a": [\n    1,\n    {}\n  ],\n  3: {\n    null: false\n  }\n}');
});

test("what is not one whole map or array is none", () => {
  for (const hex of [
    "", "01", "a1 61", "c0", "91", "92 01", "91 01 00", "91 c1", "91 a2 61", "91 c4 05 00", "91 cf 00", "91 d4 05", "91 d7 ff 00",
    "81 a1 61", "dd ffffffff 01", "df ffffffff", "dc 00", "91 db ffffffff 61", "91 c9 ffffffff 01",
  ]) expect(prettyMsgpack(raw(hex)), hex).toBeNull();
});

test("depth, number of values and bytes are bounded", () => {
  const nested = (depth: number) => Uint8Array.from([...Array<number>(depth).fill(0x91), 0xc0]);
  expect(prettyMsgpack(nested(64))).not.toBeNull();
  expect(prettyMsgpack(nested(65))).toBeNull();
  expect(prettyMsgpack(nested(90_000))).toBeNull();
  const many = (count: number) => Uint8Array.from([0xdc, count >> 8, count & 255, ...Array<number>(count).fill(1)]);
  expect(prettyMsgpack(many(9_999))).not.toBeNull();
  expect(prettyMsgpack(many(10_000))).toBeNull();
  expect(prettyMsgpack(Uint8Array.from([0x91, 0xc6, 0, 1, 0x86, 0xa0, ...Array<number>(100_000).fill(0)]))).toBeNull();
});

test("a view into a larger buffer is read from its own beginning", () => {
  expect(prettyMsgpack(raw("ffff 91 cd 0102 ff").subarray(2, 6))).toBe("[\n  258\n]");
});
