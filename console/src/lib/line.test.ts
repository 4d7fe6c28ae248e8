import { expect, test } from "vitest";
import { commandOf, commandsOf, completions, isSecret, lineAt, remembered, words } from "./line";

test("words as redis-cli reads them", () => {
  expect(words('SET "a b" \'c d\'')?.map((word) => word.text)).toEqual(["SET", "a b", "c d"]);
  expect(words("  GET   x ")?.map((word) => [word.from, word.to])).toEqual([[2, 5], [8, 9]]);
  expect(words("")).toEqual([]);
});

test("an open quote is not a command yet", () => {
  expect(words('SET "a')).toBeNull();
  expect(words('SET "a\\"')).toBeNull();
  expect(words('SET "a\\""')).not.toBeNull();
});

const KNOWN = new Set(["get", "config", "config get", "config set"]);

test("the command of a line, with its subcommand", () => {
  expect(commandOf("  GeT a", KNOWN)).toBe("get");
  expect(commandOf("CONFIG GET max", KNOWN)).toBe("config get");
  expect(commandOf("config ", KNOWN)).toBe("config");
  expect(commandOf("nothing", KNOWN)).toBeNull();
  expect(commandOf("", KNOWN)).toBeNull();
});

test("completions begin with what is typed, the shortest first", () => {
  expect(completions("con", [...KNOWN])).toEqual(["config", "config get", "config set"]);
  expect(completions("CONFIG  s", [...KNOWN])).toEqual(["config set"]);
  expect(completions("get", [...KNOWN])).toEqual([]);
  expect(completions("", [...KNOWN])).toEqual([]);
});

test("the history keeps each line once in a row, and so many", () => {
  expect(remembered(["a"], "a")).toEqual(["a"]);
  expect(remembered(["a"], " ")).toEqual(["a"]);
  expect(remembered(["a", "b"], "c", 2)).toEqual(["b", "c"]);
});

test("passwords stay out of it", () => {
  for (const line of ["AUTH x", "hello 3 auth default x", "acl setuser ada >x", "config set requirepass x"]) expect(isSecret(line)).toBe(true);
  for (const line of ["GET auth", "HELLO 3", "ACL LIST", "CONFIG SET timeout 3"]) expect(isSecret(line)).toBe(false);
});

test("a text has a command in each line, and the cursor is in one of them", () => {
  expect(commandsOf("MULTI\r\n\n  SET a 1 \nEXEC\n")).toEqual(["MULTI", "SET a 1", "EXEC"]);
  expect(commandsOf(" \n")).toEqual([]);
  const text = "GET a\n\nSET b 1";
  for (const [cursor, line] of [[0, "GET a"], [5, "GET a"], [6, ""], [7, "SET b 1"], [14, "SET b 1"]] as const) expect(lineAt(text, cursor).text, String(cursor)).toBe(line);
  expect(lineAt(text, 9)).toEqual({ from: 7, to: 14, text: "SET b 1" });
  expect(lineAt("", 0)).toEqual({ from: 0, to: 0, text: "" });
});
