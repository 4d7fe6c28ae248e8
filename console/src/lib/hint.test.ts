import { expect, test } from "vitest";
import { forPeople } from "./hint";

test("hints for programs are not shown to people", () => {
  for (const hint of [
    "GET /api/v1/databases lists them", 'send {"maxclients": "1000"}', "send role or password", "PUT the whole value",
    "POST /api/v1/databases/shop/backups makes a backup first", "send Content-Type: application/json", "use key64= for keys that are not UTF-8",
    "an administrator can create one with POST /api/v1/tokens",
  ]) expect(forPeople(hint), hint).toBe("");
});

test("what helps stays", () => {
  expect(forPeople("ask an administrator")).toBe("ask an administrator");
  expect(forPeople("try again: GET /api/v1/databases shows the progress")).toBe("try again");
  expect(forPeople("ask for less, or shrink or delete another database first: GET /api/v1/node shows what each database has")).toBe(
    "ask for less, or shrink or delete another database first",
  );
  expect(forPeople("its workers may be busy with a long command: see the slow log")).toBe("its workers may be busy with a long command: see the slow log");
});
