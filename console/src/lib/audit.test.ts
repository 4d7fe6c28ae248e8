import { expect, test } from "vitest";
import { auditCsv, filtered } from "./audit";

const entry = (more: object) => ({ at_ms: 0, user: "ann", role: "admin", address: "127.0.0.1", through: "", action: "key.set", target: "shop", detail: "", ok: true, ...more });
const none = { user: "", action: "", outcome: "", text: "" };

test("the filters of the audit log", () => {
  const all = [entry({}), entry({ user: "bob", ok: false, detail: 'SET "Cart:1": NOPERM' }), entry({ action: "user.create", target: "vera" })];
  expect(filtered(all, none)).toEqual(all);
  expect(filtered(all, { ...none, user: "bob" })).toEqual([all[1]]);
  expect(filtered(all, { ...none, outcome: "failed" })).toEqual([all[1]]);
  expect(filtered(all, { ...none, outcome: "done", action: "user.create" })).toEqual([all[2]]);
  expect(filtered(all, { ...none, text: "cart:1" })).toEqual([all[1]]);
});

test("its file holds no formulas", () => {
  expect(auditCsv([entry({ detail: 'a "b", c' }), entry({ target: "=1+1", ok: false })])).toBe(
    "time,user,role,address,through,action,target,detail,outcome\n" +
      '1970-01-01T00:00:00.000Z,ann,admin,127.0.0.1,,key.set,shop,"a ""b"", c",done\n' +
      "1970-01-01T00:00:00.000Z,ann,admin,127.0.0.1,,key.set,'=1+1,,failed\n",
  );
});
