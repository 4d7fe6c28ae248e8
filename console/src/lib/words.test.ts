import { expect, test } from "vitest";
import { inWords } from "./words";

test("an error names the fields of the form, and sizes as the console shows them", () => {
  expect(inWords("ram-limit 5mb is less than the 40mb that a node needs (16mb + 2 io-threads × 2mb): raise ram-limit to at least 40mb, or lower io-threads, or set appendonly no")).toBe(
    "RAM limit 5 MiB is less than the 40 MiB that a node needs (16 MiB + 2 workers × 2 MiB): raise the RAM limit to at least 40 MiB, or let the node have fewer workers, or set the persistence to none",
  );
  expect(inWords("a database needs a RAM limit")).toBe("a database needs a RAM limit");
});
