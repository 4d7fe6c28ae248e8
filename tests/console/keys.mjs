// The key browser: the tree, search among members, deletion of many keys, export and import, the analysis, and the audit log of it all.
import { readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { logIn, main, openPage, overflow, picture, same, story, that, until, violations, visit } from "./harness.mjs";

await main(async (node, browser) => {
  const { step, done, on } = story("keys");
  const page = await openPage(browser, node, { viewport: { width: 1440, height: 900 } });
  on(page);
  const dialog = page.getByRole("dialog");
  const button = (name) => page.getByRole("button", { name, exact: true });
  const list = page.getByRole("region", { name: "Keys", exact: true });
  await logIn(page);

  /** Commands, each through the API as the page would send it. */
  const run = (...lines) =>
    page.evaluate(async (lines) => {
      const { csrf } = await (await fetch("/api/v1/session")).json();
      for (const line of lines) {
        const headers = { "content-type": "application/json", "x-csrf-token": csrf };
        const response = await fetch("/api/v1/databases/default/command", { method: "POST", headers, body: JSON.stringify({ line }) });
        const { reply } = await response.json();
        if (!response.ok || reply.type === "error") throw new Error(`${line}: ${JSON.stringify(reply)}`);
      }
    }, lines);
  async function clean() {
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      same(await violations(page), [], `axe-core at ${width}`);
      that((await overflow(page)) <= 0, `something runs out of the window at ${width}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
  }

  await step("keys in a tree by their separator, with the keyboard", async () => {
    await run(
      `EVAL "for i = 1, 40 do redis.call('SET', 'cart:' .. i .. ':items', i) end" 0`,
      `EVAL "for i = 1, 2000 do redis.call('HSET', 'users', 'user' .. i, i) end" 0`,
      "ZADD board 1.5 ada 9 grace", "SET cart:1:note hello EX 5000", "RPUSH queue a b", "SADD tags flash", "XADD orders * total 1",
    );
    await visit(page, "/databases/default/keys");
    await list.getByRole("button", { name: /board/ }).waitFor();
    for (const heading of ["Key", "Type", "Tier", "TTL", "Size"]) await list.locator(".heads").getByText(heading, { exact: true }).waitFor();
    await clean();
    await list.getByRole("button", { name: "Tree" }).click();
    await page.waitForURL(/tree=/);
    const folder = list.getByRole("button", { name: /^cart ?41 keys/ });
    await folder.focus();
    await page.keyboard.press("Enter");
    await list.getByRole("button", { name: /^1 ?2 keys/ }).first().click();
    await list.getByRole("button", { name: /^note/ }).click();
    await page.getByText(/1 h \d+ min/).first().waitFor();
    await clean();
    await picture(page, "keys-tree");
  });

  await step("members are searched in all of a hash", async () => {
    await visit(page, "/databases/default/keys?key=s%3Ausers");
    await page.getByLabel("Find in the members").fill("user1999");
    await page.getByRole("button", { name: "Find", exact: true }).click();
    // The member may be among those that were shown before.
    await until("only the member that matches is there", async () => (await page.locator(".view tbody tr").count()) === 1);
    await page.getByRole("cell", { name: "user1999", exact: true }).waitFor();
    await page.getByLabel("Find in the members").fill("nobody");
    await page.keyboard.press("Enter");
    await page.getByText("No member matches.").waitFor();
    await page.getByRole("button", { name: "Show all" }).click();
    await until("all members are back", async () => (await page.locator(".view tbody tr").count()) >= 100);
  });

  await step("elements of a list are found with their index, and entries of a stream by value and id", async () => {
    await run(
      `EVAL "for i = 0, 2999 do redis.call('RPUSH', 'visits', 'page ' .. i) end" 0`,
      `EVAL "for i = 1, 2000 do redis.call('XADD', 'readings', i .. '-0', 'sensor', 's' .. i % 3, 'value', i) end" 0`,
    );
    const found = page.locator(".view tbody tr");
    await visit(page, "/databases/default/keys?key=s%3Avisits");
    await page.getByLabel("Find in the members").fill("page 2718");
    await page.keyboard.press("Enter");
    await page.getByRole("row", { name: /^2718 page 2718/ }).waitFor();
    // On a slow machine, the keys are inspected in several requests.
    const further = page.getByRole("button", { name: "Look further" });
    await until("all were looked at", async () => {
      if (await further.isVisible()) await further.click({ timeout: 1000 }).catch(() => {});
      return page.getByText("1 match in all: 3,000 of 3,000 looked at.").isVisible();
    });
    await clean();
    await picture(page, "keys-list-search");
    await visit(page, "/databases/default/keys?key=s%3Areadings");
    await page.getByLabel("From id").fill("x");
    await page.getByRole("button", { name: "Find", exact: true }).click();
    await page.getByText(/^from: an id such as/).waitFor();
    await page.getByLabel("Find in the members").fill("s1");
    await page.getByLabel("From id").fill("1990");
    await page.getByLabel("to", { exact: true }).fill("1997-0");
    await page.getByRole("button", { name: "Find", exact: true }).click();
    await until("three entries match", async () => (await found.count()) === 3);
    await page.getByText("3 matches in all: 8 of 2,000 looked at.").waitFor();
    await clean();
    await picture(page, "keys-stream-search");
    await page.getByRole("button", { name: "Show all" }).click();
    await until("all entries are back", async () => (await found.count()) >= 100);
    // An id that the server generated is long, but must stay on one line.
    await run(`XADD receipts 1795480430716-0 note ${"n".repeat(300)}`);
    await visit(page, "/databases/default/keys?pattern=receipts&key=s%3Areceipts");
    const id = page.locator(".view").getByRole("cell", { name: "1795480430716-0", exact: true });
    same(await id.evaluate((cell) => { const text = document.createRange(); text.selectNodeContents(cell); return new Set(Array.from(text.getClientRects(), (line) => line.top)).size; }), 1, "lines of an id");
    await visit(page, "/databases/default/keys?pattern=visits");
    const tag = page.locator(".list li .tag.list");
    await tag.waitFor();
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      same(await tag.evaluate((one) => one.scrollWidth - one.clientWidth), 0, `what of a list's tag is cut off at ${width}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
  });

  await step("JSON and MessagePack inside a hash are shown indented, and as they are on request", async () => {
    await run(`HSET mixed json '{"a":[1,2]}' packed "\\x81\\xa1k\\xc3" text plain`);
    await visit(page, "/databases/default/keys?key=s%3Amixed");
    const value = (field) => page.getByRole("row", { name: new RegExp(`^${field}`) }).getByRole("cell").nth(1).textContent();
    const shown = page.getByRole("button", { name: /^Format / });
    same(await shown.getAttribute("aria-pressed"), "true", "the values are formatted");
    same([await value("json"), await value("packed"), await value("text")], ['{\n  "a": [\n    1,\n    2\n  ]\n}', '{\n  "k": true\n}', "plain"], "indented");
    await clean();
    await shown.click();
    same([await value("json"), await value("packed")], ['{"a":[1,2]}', "\\x81\\xa1k\\xc3"], "as they are");
    await run("DEL mixed");
  });

  let file;
  await step("keys that match are exported", async () => {
    await visit(page, "/databases/default/keys?pattern=cart:*");
    await list.getByRole("button", { name: "Export the keys that match" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), dialog.getByRole("button", { name: "Export" }).click()]);
    await dialog.getByText("41 keys exported").waitFor();
    await clean();
    file = join(tmpdir(), `flintkv-export-${process.pid}.jsonl`);
    writeFileSync(file, readFileSync(await download.path()));
    same(readFileSync(file, "utf8").trim().split("\n").length, 41, "lines of the file");
    await dialog.getByRole("button", { name: "Close" }).click();
  });

  await step("they are counted, named, and deleted once the pattern is typed", async () => {
    await list.getByRole("button", { name: "Delete the keys that match" }).click();
    await dialog.getByText("41 keys in db 0 will be deleted").waitFor();
    await dialog.getByText("and 31 more").waitFor();
    await clean();
    const confirm = dialog.getByRole("button", { name: "Delete 41 keys" });
    same(await confirm.getAttribute("aria-disabled"), "true", "the button before the pattern is typed");
    await dialog.getByLabel("Type cart:* to confirm").fill("cart:*");
    await confirm.click();
    await dialog.getByText("41 keys deleted.").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByText("No key matches").waitFor();
  });

  await step("and imported again", async () => {
    await list.getByRole("button", { name: "Import" }).click();
    await dialog.getByLabel("File").setInputFiles(file);
    await dialog.getByRole("button", { name: "Import" }).click();
    await dialog.getByText("41 keys imported of 41.").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByText("41 keys shown").waitFor();
    await list.getByRole("button", { name: "Import" }).click();
    await dialog.getByLabel("File").setInputFiles({ name: "other.jsonl", mimeType: "application/jsonl", buffer: Buffer.from("no export\n") });
    await dialog.getByRole("button", { name: "Import" }).click();
    await dialog.getByText("Line 1 of the file is not a key of an export.").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
  });

  await step("an analysis tells patterns, types and the largest keys", async () => {
    await visit(page, "/databases/default/keys");
    await button("Analysis").click();
    await page.getByText("No analysis was made yet").waitFor();
    await button("Analyse").click();
    await page.locator(".tag", { hasText: /^done$/ }).waitFor();
    await page.getByRole("row", { name: /cart:\*:items ?40/ }).waitFor();
    await clean();
    await picture(page, "keys-analysis", { fullPage: true });
    await button("Types").click();
    await page.getByRole("row", { name: /hash ?1/ }).waitFor();
    await page.getByRole("region", { name: "Largest values in RAM" }).getByRole("button", { name: "users" }).click();
    await page.getByRole("heading", { level: 2, name: "users" }).waitFor();
  });

  await step("the audit log has it, filtered, in a file", async () => {
    await visit(page, "/events?view=audit");
    await page.getByLabel("Action").selectOption("keys.delete");
    await page.getByRole("cell", { name: /pattern "cart:\*": 41 keys deleted/ }).waitFor();
    await page.getByLabel("Outcome").selectOption("failed");
    await page.getByText("Nothing fits these filters").waitFor();
    await page.getByLabel("Outcome").selectOption("");
    await clean();
    const [download] = await Promise.all([page.waitForEvent("download"), button("CSV").click()]);
    const text = readFileSync(await download.path(), "utf8");
    that(text.startsWith("time,user,role,address,through,action,target,detail,outcome\n20") && text.includes("keys.delete"), "the file of the audit log");
    await picture(page, "keys-audit");
  });
  done();
});
