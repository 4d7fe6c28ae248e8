// An operator's day: a database is created, loaded, watched, resized, inspected and deleted.
import { readFileSync } from "node:fs";
import { bench, benchUntilStopped, enter, logIn, main, openPage, picture, same, story, that, until, visit } from "./harness.mjs";

await main(async (node, browser) => {
  const { step, done, on } = story("flow");
  const page = await openPage(browser, node);
  on(page);
  let port;
  const dialog = page.getByRole("dialog");
  const button = (name) => page.getByRole("button", { name, exact: true });

  await logIn(page);

  await step("the planner says what data take, and its limits begin a database", async () => {
    await visit(page, "/plan");
    await page.getByLabel("Keys", { exact: true }).fill("1 m");
    await page.getByLabel("Skew").fill("0");
    await page.getByLabel("RAM hit ratio").fill("50 %");
    await page.getByText("50 % with 50 % of the values in RAM").waitFor();
    await page.getByText("for 500 k values").waitFor();
    const plain = await page.getByRole("row").last().innerText();
    that(/^100 %\s+100 %/.test(plain), `the last row is ${plain}`);
    await page.getByLabel("Size of a value").fill("2 xb");
    await page.getByText("A size such as 500 or 2 kb.").waitFor();
    await page.getByLabel("Size of a value").fill("99 mb");
    await page.getByText("must be at most 16 MB").waitFor();
    await page.getByLabel("Size of a value").fill("500");
    await page.getByLabel("Price of 1 GiB of RAM").fill("8");
    await page.getByText(/instead of [\d.]+ with all values in RAM/).waitFor();
    await page.waitForURL(/keys=1\+m.*skew=0.*hit_ratio=50/);
    await page.getByRole("link", { name: "Create a database with these limits" }).click();
    await page.getByRole("heading", { level: 1, name: "Create a database" }).waitFor();
    that(/^\d+(\.\d+)? [mg]b$/.test(await page.getByLabel("Memory limit").inputValue()), "the planner's memory limit is not there");
    await visit(page, "/databases");
  });

  await step("the planner measures a running Redis, and says why one cannot be measured", async () => {
    await visit(page, "/plan");
    await page.getByLabel("Address").fill("redis://somebody:secret@127.0.0.1");
    await button("Measure").click();
    await page.getByText("must not contain a user or password").waitFor();
    await page.getByLabel("Address").fill("redis://127.0.0.1:1");
    await page.getByLabel("Watch commands").selectOption("0");
    await button("Measure").click();
    await page.getByText("check host and port").waitFor();
    // The figures of prepare-flash, of which only some go to the node.
    const reads = [{ depth: 1, reads_per_second: 20000, latency_us: 90, latency_p99_us: 200, cpu_us_per_read: 5 }];
    const printed = JSON.stringify({ directories: [{ path: "/flash", reads, write_bytes_per_second: 1e9 }] });
    await page.getByLabel("Reads a second").fill("1000");
    await page.getByLabel("Figures of the flash").setInputFiles({ name: "flash.json", mimeType: "application/json", buffer: Buffer.from(printed) });
    await page.getByText("A read from flash takes 90 µs").waitFor();
    await page.getByLabel("Figures of the flash").setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from("[]") });
    await page.getByText("This is not the output of flintkv prepare-flash").waitFor();
    await visit(page, "/databases");
  });

  await step("the form judges what is typed, and says what is left", async () => {
    await button("Create a database").click();
    await page.getByRole("textbox", { name: "Name" }).fill("Shop");
    await page.getByText("Small letters, digits and hyphens, beginning").waitFor();
    await page.getByRole("textbox", { name: "Name" }).fill("default");
    await page.locator("input[name=name][aria-invalid=true]").waitFor();
    await page.getByRole("textbox", { name: "Name" }).fill("shop");
    await page.getByLabel("Memory limit").fill("900 tb");
    await page.getByText(/missing/).first().waitFor();
    await page.getByLabel("Memory limit").fill("256 mb");
    await page.getByLabel("RAM limit").fill("25 %");
    await page.getByText(/This database: 64 Mi?B\./).waitFor();
    await page.getByRole("textbox", { name: "Port", exact: true }).fill("abc");
    await page.locator("input[name=port][aria-invalid=true]").waitFor();
    await page.getByText("A whole number.").first().waitFor();
    await page.getByRole("textbox", { name: "Port", exact: true }).fill("");
    await page.getByText("The node would create this database.").waitFor();
    await page.getByText("Endpoints, shards, replicas").click();
    await page.getByLabel("Shards").fill("3");
    await page.locator("input[aria-invalid=true]").waitFor();
    await page.getByLabel("Shards").fill("1");
    await page.getByLabel("Persistence").selectOption("none");
    await page.getByText("The node would create this database.").waitFor();
    await picture(page, "flow-create");
  });

  await step("it is created, and shows how to reach it", async () => {
    await button("Create").click();
    await page.getByRole("heading", { level: 1, name: "shop" }).waitFor();
    const line = await page.locator(".copy-line code").first().textContent();
    port = Number(/-p (\d+)/.exec(line)?.[1]);
    that(port > 0, `no port in ${line}`);
    await visit(page, "/databases");
    await page.getByRole("row", { name: /shop/ }).getByText("active").waitFor();
  });

  await step("driven past its RAM limit, its metrics show the RAM hit ratio", async () => {
    await bench(port, "--clients", "8", "--threads", "1", "--data-size", "1000", "--ratio", "1:0", "--key-pattern", "P:P", "--key-maximum", "120000", "--requests", "allkeys", "--pipeline", "8");
    const stop = benchUntilStopped(port, "--clients", "8", "--threads", "1", "--data-size", "1000", "--ratio", "1:9", "--key-pattern", "G:G", "--key-maximum", "120000");
    await visit(page, "/databases/shop/metrics?range=1m");
    await page.getByLabel("The first large graph", { exact: true }).selectOption({ label: "RAM hit ratio" });
    const graph = page.getByRole("region", { name: "The first large graph: RAM hit ratio" });
    await until("the graph shows a RAM hit ratio", async () => /latest \d/.test((await graph.getByRole("img").first().getAttribute("aria-label", { timeout: 1000 }).catch(() => "")) ?? ""));
    await visit(page, "/databases");
    const row = page.getByRole("row", { name: /shop/ });
    await until("the list shows operations and hits", async () => {
      const text = await row.innerText();
      return /\d %/.test(text) && /\d k/.test(text);
    });
    await picture(page, "flow-driven");
    await stop();
  });

  await step("graphs: two to compare, values, table, files, zoom, a link that shows the same", async () => {
    await visit(page, "/databases/shop/metrics?range=1m");
    const small = page.getByRole("button", { name: /^Flash bandwidth/ });
    // Also while its graph is replaced between the press and the release.
    await small.hover();
    await page.mouse.down();
    await small.evaluate((node) => node.lastElementChild.replaceWith(node.lastElementChild.cloneNode(true)));
    await page.mouse.up();
    await page.waitForURL(/a=flash-bytes/);
    const first = page.getByRole("region", { name: /^The first large graph: Flash bandwidth/ });
    await page.getByRole("region", { name: /^The second large graph: Operations/ }).waitFor();
    // A live graph is redrawn with each reading, and then loses the position of the mouse.
    const soon = { timeout: 2000 };
    await until("the values under the mouse are shown", async () => {
      await first.locator(".u-over").hover();
      return first.getByText(/^\d{4}-\d\d-\d\d/).waitFor(soon).then(() => true, () => false);
    });
    const saved = async (name) => {
      const [download] = await Promise.all([page.waitForEvent("download"), first.getByRole("button", { name }).click()]);
      return readFileSync(await download.path());
    };
    that((await saved("CSV")).toString().startsWith("time,time_ms,flash_read_bytes,flash_write_bytes\n20"), "the CSV does not begin as it should");
    same([...(await saved("PNG")).subarray(1, 4)].map((byte) => String.fromCharCode(byte)).join(""), "PNG", "the picture");
    await first.getByRole("button", { name: "Table" }).click();
    await first.getByRole("columnheader", { name: "written" }).waitFor();
    await first.getByRole("button", { name: "Table" }).click();
    await until("a part of the graph is chosen", async () => {
      const area = await first.locator(".u-over").boundingBox();
      if (!area) return false;
      await page.mouse.move(area.x + area.width * 0.8, area.y + 40);
      await page.mouse.down();
      await page.mouse.move(area.x + area.width * 0.97, area.y + 40, { steps: 4 });
      await page.mouse.up();
      return page.waitForURL(/from=\d+&to=\d+/, soon).then(() => true, () => false);
    });
    await button("Back to live").waitFor();
    await picture(page, "flow-metrics", { fullPage: true });
    const link = page.url();
    await page.goto(link);
    await page.getByRole("region", { name: /^The first large graph: Flash bandwidth/ }).waitFor();
    await button("Back to live").click();
    await page.waitForURL((url) => !url.searchParams.has("from"));
  });

  await step("resized up and down, while it serves", async () => {
    for (const [memory, ram, shown] of [["512 mb", "128 mb", "Limit 512 MiB"], ["384 mb", "64 mb", "Limit 384 MiB"]]) {
      await visit(page, "/databases/shop");
      await button("Resize").click();
      await dialog.getByLabel("Memory limit").fill(memory);
      await dialog.getByLabel("RAM limit").fill(ram);
      await dialog.getByRole("button", { name: "Apply" }).click();
      await dialog.waitFor({ state: "detached" });
      await page.getByText(shown).waitFor();
    }
    await page.locator(".tag", { hasText: /^active$/ }).waitFor();
  });

  await step("paused and resumed", async () => {
    await visit(page, "/databases/shop");
    await button("Pause").click();
    await dialog.getByText(/are connected now/).waitFor();
    await dialog.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Clients get an error for every command.").waitFor();
    await button("Resume").click();
    await button("Pause").waitFor();
  });

  await step("commands: completion, docs, replies of every kind", async () => {
    await visit(page, "/databases/shop/command");
    const line = page.locator("#line");
    await line.pressSequentially("hgeta");
    await page.getByRole("option", { name: "HGETALL" }).waitFor();
    await line.press("Tab");
    same(await line.inputValue(), "HGETALL ", "what Tab completes");
    await page.getByRole("complementary", { name: "What the command does" }).getByText("HGETALL key").waitFor();
    // Each command adds an entry. Look for the reply only there, because an earlier entry may show the same text. The console
    // accepts no other line until then.
    const entries = page.getByRole("log").locator(".entry");
    const run = async (text, reply) => {
      const before = await entries.count();
      await line.fill(text);
      await line.press("Enter");
      const entry = entries.nth(before);
      await entry.locator(".said").getByText(text, { exact: true }).waitFor();
      await entry.locator(".reply").getByText(reply).first().waitFor();
    };
    await run("HSET profile name Ada", "1");
    await run("HGETALL profile", "map of 1");
    await run("LRANGE nothing 0 -1", "empty array");
    await run('SET raw "\\x00\\xff"', "OK");
    await run("GET raw", "\\x00\\xff");
    await run("GET profile", "WRONGTYPE");
    await run("SELECT 1", "OK");
    await page.getByText("shop[1]>").last().waitFor();
    await line.press("ArrowUp");
    same(await line.inputValue(), "SELECT 1", "the line before");
  });

  await step("keys: found by pattern, shown by type, changed, deleted", async () => {
    await visit(page, "/databases/shop/keys");
    await page.getByLabel("Pattern").fill("profile");
    await button("Search").click();
    await page.locator(".list button", { hasText: "profile" }).click();
    await page.getByRole("cell", { name: "Ada", exact: true }).waitFor();
    await page.getByRole("button", { name: "Change name" }).click();
    await dialog.getByLabel("Value").fill("Grace");
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByRole("cell", { name: "Grace", exact: true }).waitFor();
    await button("Expiry").click();
    await dialog.getByLabel("Time to live").fill("2 h");
    await dialog.getByRole("button", { name: "Apply" }).click();
    // The page reads the key again, which would take a dialog away that is opened meanwhile.
    await dialog.waitFor({ state: "detached" });
    await page.getByText(/1 h 59 min|2 h/).first().waitFor();
    await button("Delete").click();
    await dialog.getByRole("button", { name: "Delete" }).click();
    await page.getByText("No key matches").waitFor();
    await button("New key").click();
    await dialog.getByLabel("Key", { exact: true }).fill("made here");
    await dialog.getByLabel("Type").selectOption("zset");
    await dialog.getByLabel("Member").fill("ada");
    await dialog.getByLabel("Score").fill("12.5");
    await dialog.getByRole("button", { name: "Create" }).click();
    await page.getByRole("cell", { name: "12.5", exact: true }).waitFor();
    await visit(page, "/databases/shop/keys?pattern=raw");
    await page.locator(".list button", { hasText: "raw" }).click();
    await page.getByText("00000000  00 ff").waitFor();
  });

  await step("configuration is changed live; the slow log fills; a client is killed", async () => {
    await visit(page, "/databases/shop/config?search=slowlog-log-slower-than");
    await page.getByRole("button", { name: "Change slowlog-log-slower-than" }).click();
    await dialog.getByLabel("Value").fill("0");
    await dialog.getByRole("button", { name: "Apply" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.locator(".tag", { hasText: "changed" }).waitFor();
    await visit(page, "/databases/shop/config");
    await until("names stand as code in the descriptions", () => page.locator(".what p.muted code").count());
    that(!(await page.locator("main").innerText()).includes("`"), "a description has backquotes");
    const stop = benchUntilStopped(port, "--clients", "1", "--threads", "1", "--rate-limiting", "20");
    await visit(page, "/databases/shop/slowlog");
    await page.getByRole("cell").first().waitFor();
    await visit(page, "/databases/shop/clients");
    await page.getByLabel("Find a client").fill("127.0.0.1");
    await page.getByRole("button", { name: /^Kill client/ }).first().click();
    await dialog.getByRole("button", { name: "Kill" }).click();
    await page.getByText(/is disconnected/).waitFor();
    await stop();
  });

  await step("a rule fires, its webhook is judged", async () => {
    await visit(page, "/alerts");
    await button("New rule").click();
    await dialog.getByLabel("Name").fill("keys are there");
    await dialog.getByLabel("Of").selectOption("database:shop");
    await dialog.getByLabel("Metric").selectOption("keys");
    await dialog.getByLabel("Is", { exact: true }).selectOption(">");
    await dialog.getByLabel("Threshold").fill("1");
    await dialog.getByLabel("For seconds").fill("0");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("row", { name: /firing keys are there/ }).waitFor();
    await picture(page, "flow-alerts");
  });

  await step("a viewer sees, and is told why the rest is not for them", async () => {
    await visit(page, "/users");
    await button("New user").click();
    await dialog.getByLabel("Name").fill("vera");
    await dialog.getByLabel("Password").fill("vera's password");
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByRole("row", { name: /vera/ }).waitFor();
    await button("New token").click();
    await dialog.getByLabel("Name").fill("ci");
    await dialog.getByRole("button", { name: "Create" }).click();
    await page.getByText(/^fkv_/).waitFor();
    const other = await openPage(browser, node);
    // The administrator has chosen the password, so the page offers only its change.
    await enter(other, "vera", "vera's password");
    await other.getByText("admin chose your password.").waitFor();
    same(await other.getByRole("link", { name: "Databases" }).count(), 0, "links before the password is changed");
    await other.goto("/databases/default");
    await other.getByRole("heading", { level: 1, name: "Your account" }).waitFor();
    await other.getByLabel("Present password").fill("vera's password");
    await other.getByLabel("New password", { exact: true }).fill("vera's own word");
    await other.getByLabel("New password again").fill("vera's own word");
    await other.getByRole("button", { name: "Change the password" }).click();
    await other.getByRole("heading", { level: 1, name: "default" }).waitFor();
    await visit(other, "/databases");
    const create = other.getByRole("button", { name: "Create a database" });
    same(await create.getAttribute("aria-disabled"), "true", "the button of a viewer");
    that((await create.getAttribute("title")).includes("operator"), "the reason is missing");
    same(await other.getByRole("link", { name: "Users" }).count(), 0, "links to what is not theirs");
    await visit(other, "/databases/shop");
    for (const name of ["Pause", "Flush", "Delete", "Resize"]) same(await other.getByRole("button", { name, exact: true }).getAttribute("aria-disabled"), "true", name);
    same(other.wrong, [], "errors in the viewer's page");
    await other.context().close();
  });

  await step("persistence is changed; a backup is made, scheduled, and becomes a database", async () => {
    await visit(page, "/databases/shop");
    await page.getByText("none: a restart begins empty").waitFor();
    await button("Change").click();
    await dialog.getByLabel("Persistence").selectOption("everysec");
    await dialog.getByLabel("Restart target").fill("30");
    await dialog.getByRole("button", { name: "Apply" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByText("Journal to replay").waitFor();
    await page.getByText("the target is 30 s").waitFor();
    await visit(page, "/databases/shop/backups");
    await page.getByText("There is no backup of shop").waitFor();
    await button("Back up").click();
    await dialog.getByLabel("Directory").fill("../away");
    await dialog.getByRole("button", { name: "Back up" }).click();
    await dialog.getByText(/is not below/).waitFor();
    await dialog.getByLabel("Directory").fill("shop/one");
    await dialog.getByRole("button", { name: "Back up" }).click();
    await page.getByRole("row", { name: /shop\/one/ }).waitFor();
    await button("Schedule").click();
    await dialog.getByLabel("Backup every").fill("6h");
    await dialog.getByRole("button", { name: "Apply" }).click();
    await page.getByText("A backup every 6h").waitFor();
    await page.getByRole("row", { name: /schedule/ }).waitFor();
    await picture(page, "flow-backups");
    await page.getByRole("button", { name: "Verify shop/one", exact: true }).click();
    await page.getByText(/^shop\/one is whole: its .* keys were read/).waitFor();
    await page.getByRole("link", { name: "Restore shop/one as a new database" }).click();
    await page.getByRole("textbox", { name: "Name" }).fill("copy");
    await page.getByLabel("Memory limit").fill("80 mb");
    await page.getByLabel("RAM limit").fill("40 mb");
    same(await page.getByLabel("Begin with").inputValue(), "shop/one", "the backup of the link");
    await page.getByText("The node would create this database.").waitFor();
    await button("Create").click();
    await page.getByRole("heading", { level: 1, name: "copy" }).waitFor();
    await page.locator(".tag", { hasText: "active" }).waitFor();
    await visit(page, "/databases/shop/backups");
    await page.getByRole("button", { name: "Delete shop/one", exact: true }).click();
    await dialog.getByLabel("Type shop/one to confirm").fill("shop/one");
    await dialog.getByRole("button", { name: "Delete", exact: true }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("row", { name: /shop\/one/ }).waitFor({ state: "detached" });
    await visit(page, "/databases/copy/keys?pattern=made*");
    await page.locator(".list button", { hasText: "made here" }).waitFor();
    await visit(page, "/databases/copy");
    await button("Delete").click();
    await dialog.getByLabel("Make a backup first").uncheck();
    await dialog.getByLabel(/^Type copy/).fill("copy");
    await dialog.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("copy is deleted.").waitFor();
  });

  await step("flushed and deleted, each with its name typed", async () => {
    await visit(page, "/databases/shop");
    for (const [name, action, after] of [["Flush", "Flush", "shop is empty."], ["Delete", "Back up and delete", "shop is deleted."]]) {
      await button(name).click();
      await dialog.getByLabel(/^Type shop/).fill("shoP");
      same(await dialog.getByRole("button", { name: action, exact: true }).getAttribute("aria-disabled"), "true", "with the wrong name");
      await dialog.getByLabel(/^Type shop/).fill("shop");
      await dialog.getByRole("button", { name: action, exact: true }).click();
      await page.getByText(after).waitFor();
    }
    await page.getByRole("heading", { level: 1, name: "Databases" }).waitFor();
    await page.getByRole("row", { name: /shop/ }).waitFor({ state: "detached" });
    await visit(page, "/events");
    await page.getByRole("cell", { name: /shop/ }).first().waitFor();
    await visit(page, "/events?view=audit");
    await page.getByRole("cell", { name: /delete/ }).first().waitFor();
  });

  await step("logging out", async () => {
    await button("Log out").click();
    await button("Log in").waitFor();
  });
  done();
});
