import { expect, test } from "vitest";
import { pretty } from "./pretty";

test("JSON is indented, without a changed number or a hidden sign", () => {
  const json = (text: string) => pretty(text)?.text;
  expect(pretty(' {"a":[1,"x\\n, {"], "b" : {}}')).toEqual({ form: "JSON", text: '{\n  "a": [\n    1,\n    "x\\n, {"\n  ],\n  "b": {}\n}' });
  expect(json('{"n":12345678901234567890,"m":[1.0,-2e3,true,null]}')).toBe('{\n  "n": 12345678901234567890,\n  "m": [\n    1.0,\n    -2e3,\n    true,\n    null\n  ]\n}');
  expect(json('["\u202e","\\"[ ]"]')).toBe('[\n  "\\u202e",\n  "\\"[ ]"\n]');
  expect(json("[ ]")).toBe("[]");
  expect(json(`[${"[".repeat(10)}${"]".repeat(10)}]`)?.split("\n")).toHaveLength(21);
  for (const other of ["7", '"text"', "{", "[1,]", "", "[1] x", `[${"1,".repeat(50_000)}1]`]) expect(pretty(other), other.slice(0, 20)).toBeNull();
});

test("what JSON.parse reads stays the same", () => {
  for (const text of ['{"a":{"b":[[],{},[{"c":"d,e:f"}]]},"g":"\\\\","h":"\\u0041"}', "[[1,2],[3,[4,[5]]]]", '[" ","\\t",-0.5e-7]']) {
    expect(JSON.parse(pretty(text)!.text)).toEqual(JSON.parse(text));
  }
});

test("binary that is MessagePack is shown so, and text is not taken for it", () => {
  expect(pretty({ base64: btoa("\x81\xa1a\x01") })).toEqual({ form: "MessagePack", text: '{\n  "a": 1\n}' });
  expect(pretty({ base64: btoa("\xff\x00") })).toBeNull();
  // An array of 49,280 values in MessagePack, and two letters in UTF-8.
  expect(pretty("\u0700\u0080a")).toBeNull();
});
