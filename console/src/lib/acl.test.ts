import { expect, test } from "vitest";
import { explain, parseUser, previewed, rulesOf } from "./acl";

const said = (line: string): string[] => explain(parseUser(line)!);

test("rules in words", () => {
  expect(said("user default on nopass sanitize-payload ~* &* +@all")).toEqual(["Logs in with any password.", "Sees every key.", "Uses every channel.", "Runs all commands."]);
  expect(said("user app on #aa #bb ~cart:* %R~price:* &news -@all +@read +set|x -@dangerous")).toEqual([
    "Logs in with any of 2 passwords.", "Sees the keys cart:* and price:* (only to read).", "Uses the channels news.",
    "Runs commands that read and SET X, without dangerous commands.",
  ]);
  expect(said("user old off resetchannels -@all")).toEqual(["Cannot log in: the user is off.", "Sees no key.", "Uses no channel.", "Runs no command."]);
  expect(said("user ops on #aa ~* &* -@all +get +@all -@admin")[3]).toBe("Runs all commands but commands for administrators.");
  expect(said("user two on #aa ~a resetchannels -@all +get (~b resetchannels -@all +set)")[4]).toBe("Or, as another set of rules: (~b resetchannels -@all +set).");
  expect(said("user one on #aa ~* &* +@all -@all +get")[3]).toBe("Runs GET.");
  expect(parseUser("nothing")).toBeNull();
});

test("a form becomes rules that replace the ones before", () => {
  const form = { on: true, password: "a word", keys: "cart:* %R~price:*", channels: "news", commands: "+@read get -keys" };
  expect(rulesOf(form)).toEqual(["on", "resetkeys", "~cart:*", "%R~price:*", "resetchannels", "&news", "-@all", "+@read", "+get", "-keys", "resetpass", ">a word"]);
  expect(rulesOf({ ...form, password: "" })).not.toContain("resetpass");
  const before = parseUser("user a on #aa ~* &* +@all")!;
  expect(explain(previewed({ ...form, password: "" }, before))[0]).toBe("Logs in with its password.");
  expect(explain(previewed({ ...form, password: "" }, null))[0]).toBe("Cannot log in: there is no password.");
});
