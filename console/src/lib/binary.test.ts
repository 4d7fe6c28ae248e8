import { expect, test } from "vitest";
import { hexDump, keyFromParam, keyQuery, keyToParam, lengthOf, rawOf, sameBytes, shown, toBase64, toBase64Url } from "./binary";
import type { Bytes } from "./types";

const BINARY: Bytes = { base64: toBase64(Uint8Array.of(0, 255, 62, 63, 65)) };

test("text stays text, binary is escaped, nothing becomes markup", () => {
  expect(shown("Zoë <b>&amp;</b>")).toBe("Zoë <b>&amp;</b>");
  expect(shown("a\nb\tc\\d\u0007")).toBe("a\\nb\\tc\\d\\x07");
  expect(shown(BINARY)).toBe("\\x00\\xff>?A");
});

test("a name with some bytes that are no UTF-8 is shown like the others", () => {
  expect(shown({ base64: toBase64(Uint8Array.of(99, 97, 102, 0xc3, 0xa9, 0xff, 0)) })).toBe("café\\xff\\x00");
  expect(shown({ base64: toBase64(Uint8Array.of(92, 120, 0xe2, 0x80, 0xff)) })).toBe("\\x\\xe2\\x80\\xff");
});

test("characters that turn the direction of text are shown as what they are", () => {
  expect(shown("abc\u202etxt")).toBe("abc\\u202etxt");
});

test("long values are cut", () => {
  expect(shown("x".repeat(1000), 10)).toBe(`${"x".repeat(10)}…`);
  expect(shown({ base64: toBase64(new Uint8Array(1000)) }, 8)).toBe("\\x00\\x00…");
});

test("keys go into queries and addresses and come back", () => {
  expect(keyQuery("a b")).toEqual({ key: "a b" });
  expect(keyQuery(BINARY)).toEqual({ key64: toBase64Url(rawOf(BINARY)) });
  for (const key of ["", "a b", "s:x", "64:AAAA", BINARY]) expect(keyFromParam(keyToParam(key))).toEqual(key);
  expect(keyFromParam(null)).toBeNull();
  expect(keyFromParam("nonsense")).toBeNull();
  expect(sameBytes("a", "a")).toBe(true);
  expect(sameBytes(BINARY, "a")).toBe(false);
});

test("lengths are in bytes", () => {
  expect(lengthOf("Zoë")).toBe(4);
  expect(lengthOf(BINARY)).toBe(5);
});

test("a hex dump has offset, bytes and characters", () => {
  expect(hexDump(rawOf("0123456789abcdefg"))).toBe(
    "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n" + `00000010  67${" ".repeat(45)}  g`,
  );
  expect(hexDump(new Uint8Array(0))).toBe("");
});
