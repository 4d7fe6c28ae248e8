// Graphs, statistics of commands, and the users of a database.
import { bench, logIn, main, openPage, overflow, picture, same, story, that, until, violations, visit } from "./harness.mjs";

await main(async (node, browser) => {
  const { step, done, on } = story("views");
  const page = await openPage(browser, node, { viewport: { width: 1440, height: 900 } });
  on(page);
  const dialog = page.getByRole("dialog");
  const button = (name) => page.getByRole("button", { name, exact: true });
  await logIn(page);
  await bench(node.port, "--clients", "2", "--threads", "1", "--requests", "4000", "--ratio", "1:1", "--data-size", "64", "--key-maximum", "500");

  /** Runs a command beside the page. */
  const command = (line) => page.evaluate(async (line) => {
    const { csrf } = await (await fetch("/api/v1/session")).json();
    const headers = { "content-type": "application/json", "x-csrf-token": csrf };
    const response = await fetch("/api/v1/databases/default/command", { method: "POST", headers, body: JSON.stringify({ line }) });
    if (!response.ok) throw new Error(await response.text());
  }, line);

  async function clean(name) {
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const width of [1440, 390]) {
        await page.setViewportSize({ width, height: 900 });
        same(await violations(page), [], `axe-core at ${width}, ${scheme}`);
        that((await overflow(page)) <= 0, `something runs out of the window at ${width}`);
        await picture(page, `${name}-${width}-${scheme}`, { fullPage: true });
      }
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1440, height: 900 });
  }

  await step("the overview opens on graphs, with a line in each tile", async () => {
    await visit(page, "/databases/default");
    await until("eight tiles have lines", async () => (await page.locator(".figures svg path").count()) >= 6);
    await page.getByRole("region", { name: "The last 5 minutes" }).getByRole("img", { name: /^Operations\. .*latest/ }).waitFor();
    await clean("views-overview");
  });

  await step("without reads there is no hit ratio; latencies are logarithmic, and lines can be hidden", async () => {
    await visit(page, "/databases/default/metrics?range=1m&a=latency&b=hit-ratio");
    const first = page.getByRole("region", { name: /^The first large graph: Latency/ });
    const log = first.getByRole("button", { name: "Log scale" });
    same(await log.getAttribute("aria-pressed"), "true", "the scale of latencies");
    await log.focus();
    await page.keyboard.press("Enter");
    same(await log.getAttribute("aria-pressed"), "false", "the scale after the key");
    const line = first.getByRole("button", { name: /^p99\.9 / });
    await line.click();
    same(await line.getAttribute("aria-pressed"), "false", "the line p99.9");
    await line.click();
    await until("nobody reads", async () => page.getByRole("region", { name: /^The second large graph: RAM hit ratio/ }).getByText("no reads").first().isVisible());
    await clean("views-metrics");
  });

  await step("an interval of one's own, and another database beside", async () => {
    await page.evaluate(async () => {
      const { csrf } = await (await fetch("/api/v1/session")).json();
      const body = JSON.stringify({ name: "other", memory_limit_bytes: 60 * 2 ** 20, ram_limit_bytes: 40 * 2 ** 20, persistence: "none" });
      const response = await fetch("/api/v1/databases", { method: "POST", headers: { "content-type": "application/json", "x-csrf-token": csrf }, body });
      if (!response.ok) throw new Error(await response.text());
    });
    await visit(page, "/databases/default/metrics?range=1m&a=keys");
    await page.reload();
    await page.getByLabel("Compare with").selectOption("other");
    await page.waitForURL(/with=other/);
    await page.getByRole("region", { name: /^The first large graph: Keys/ }).getByRole("button", { name: /^other: keys/ }).waitFor();
    await button("From … to …").click();
    await page.getByLabel("From", { exact: true }).fill("2026-01-02T03:00:00");
    await page.getByLabel("to", { exact: true }).fill("2026-01-02T02:00:00");
    await page.getByText("The end must be after the beginning.").last().waitFor();
    await page.getByLabel("to", { exact: true }).fill("2026-01-02T04:00:00");
    await button("Show").click();
    await page.waitForURL(/from=\d+&to=\d+/);
    await page.getByText("2026-01-02 03:00:00 to 2026-01-02 04:00:00").waitFor();
    await button("Back to live").click();
  });

  await step("every command has its statistics", async () => {
    await visit(page, "/databases/default/slowlog");
    await button("All commands").click();
    await page.getByRole("row", { name: /^SET [\d.]+ k/ }).waitFor();
    await clean("views-commands");
  });

  await step("the latency monitor is switched on, shows what took long, and forgets it", async () => {
    await visit(page, "/databases/default/slowlog");
    await button("Latency history").click();
    await page.getByText("The latency monitor is off").waitFor();
    await page.getByLabel("Threshold in ms").fill("x");
    same(await button("Switch on").getAttribute("aria-disabled"), "true", "the button with a threshold that is no number");
    await page.getByLabel("Threshold in ms").fill("5");
    await button("Switch on").click();
    await page.getByText("It notes what takes 5 ms or longer").waitFor();
    // A script of some ten million iterations takes longer than the threshold on any machine.
    await command("EVAL 'for at = 1, 10000000 do end return 1' 0");
    await page.getByRole("row", { name: /^command / }).waitFor();
    await page.getByRole("img", { name: /^Latency events\./ }).waitFor();
    await page.getByText("What LATENCY DOCTOR says").click();
    await page.getByText("These events took longer").waitFor();
    await clean("views-latency");
    await button("Switch off").click();
    await page.getByText("The latency monitor is off", { exact: true }).waitFor();
    await button("Forget").click();
    await dialog.getByRole("button", { name: "Forget" }).click();
    await page.getByText("Nothing was noted").waitFor();
  });

  await step("a user of the database: rules in words, a test of a command", async () => {
    await visit(page, "/databases/default/acl");
    await page.getByText("Logs in with any password. Sees every key. Uses every channel. Runs all commands.").waitFor();
    same(await page.getByLabel("As", { exact: true }).inputValue(), "default", "the user of a test, before one is chosen");
    // This database has no file for users, but the other database has one.
    const keep = button("Save the file");
    await page.getByText("there is no file for them").waitFor();
    same(await keep.getAttribute("aria-disabled"), "true", "Save the file, without a file");
    await button("New user").click();
    await dialog.getByLabel("Name").fill("app");
    await dialog.getByLabel("Password").fill("a word of the app");
    await dialog.getByLabel("Keys").fill("cart:* %R~price:*");
    await dialog.getByText("Sees the keys cart:* and price:* (only to read).").waitFor();
    await dialog.getByRole("button", { name: "read and write" }).click();
    await dialog.getByText(/^Runs commands that read, commands that write,/).waitFor();
    await clean("views-acl-form");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByText(/^Logs in with its password\. Sees the keys cart:\*/).waitFor();
    const tried = async (line, said) => {
      await page.getByLabel("As", { exact: true }).selectOption("app");
      await page.getByLabel("The command").fill(line);
      await button("Test").click();
      await page.getByText(said).waitFor();
    };
    await tried("SET cart:1 v", "app may run it.");
    same(await page.getByLabel("As", { exact: true }).inputValue(), "app", "the user of the test, after it");
    await tried("SET price:1 v", /has no permissions to access the 'price:1' key/);
    await tried("FLUSHALL", /has no permissions to run the 'flushall' command/);
    await clean("views-acl");
    // A database that was created in the console has its own file.
    await visit(page, "/databases/other/acl");
    await until("there is a file", async () => (await keep.getAttribute("aria-disabled")) === null);
    await keep.click();
    await page.getByText("The users are in the configuration file.").waitFor();
    await visit(page, "/databases/default/acl");
    await page.getByRole("button", { name: "Delete app" }).click();
    await dialog.getByRole("button", { name: "Delete" }).click();
    await page.getByText("app is deleted.").waitFor();
  });

  const line = page.locator("#line");
  const entries = page.getByRole("log").locator(".entry");
  // While a line runs, Enter does nothing.
  const free = () => until("the line is free", async () => (await button("Run").getAttribute("aria-busy")) !== "true");
  /** Types lines and runs them; returns the last of their entries. */
  async function say(...lines) {
    await free();
    const before = await entries.count();
    await line.focus();
    for (const [index, one] of lines.entries()) {
      if (index > 0) await page.keyboard.press("Shift+Enter");
      await page.keyboard.insertText(one);
    }
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    const last = entries.nth(before + lines.length - 1);
    await last.locator(".reply, .json, .bad").first().waitFor();
    await free();
    return last;
  }
  const replies = (entry, text) => entry.getByText(text).first().waitFor();

  await step("several lines are a transaction, shown while it is open", async () => {
    await visit(page, "/databases/default/command");
    await replies(await say("MULTI", 'SET bytes "\\x00\\xff"', "GET bytes"), "QUEUED");
    await page.getByText("A transaction is open: 2 commands queued.").waitFor();
    await page.getByText("default(TX)>").last().waitFor();
    await clean("views-transaction");
    await button("EXEC").focus();
    await page.keyboard.press("Enter");
    await replies(entries.last(), "array of 2");
    await replies(entries.last(), "\\x00\\xff");
    await page.getByText("A transaction is open").waitFor({ state: "detached" });
    await replies(await say("SELECT 1", "SET a 1", "LPUSH a 2"), "WRONGTYPE");
    // The first line that fails ends the run.
    await free();
    await line.fill("LPUSH a 2\nGET a");
    await line.press("Enter");
    await until("what is left waits", async () => (await line.inputValue()) === "GET a");
    await free();
    const before = await entries.count();
    await line.press("Enter");
    await entries.nth(before).locator(".reply").getByText("1", { exact: true }).waitFor();
    await free();
    await line.press("ArrowUp");
    await line.press("ArrowUp");
    same(await line.inputValue(), "LPUSH a 2\nGET a", "the lines before");
    await line.fill("");
    await say("SELECT 0");
  });

  await step("MessagePack is shown as JSON is, and as it is on request", async () => {
    const entry = await say('SET packed "\\x82\\xa1a\\x92\\x01\\xc3\\xa1b\\xcb\\x3f\\xf8\\x00\\x00\\x00\\x00\\x00\\x00"', "GET packed");
    same(await entry.locator(".json").textContent(), '{\n  "a": [\n    1,\n    true\n  ],\n  "b": 1.5\n}', "the reply");
    await entry.getByRole("button", { name: "As it is" }).click();
    await replies(entry, "\\x82\\xa1a");
    await clean("views-messagepack");
    await visit(page, "/databases/default/keys?key=s%3Apacked");
    await page.getByRole("button", { name: "MessagePack", pressed: true }).waitFor();
    await page.getByRole("region", { name: "Value", exact: true }).getByText('"b": 1.5').waitFor();
    await clean("views-messagepack-key");
    await visit(page, "/databases/default/command");
  });

  await step("messages and MONITOR's lines come as they are sent, until they are stopped", async () => {
    const messages = page.getByRole("region", { name: "Messages", exact: true });
    await say("PSUBSCRIBE news.*");
    await messages.getByText("No message has come yet.").waitFor();
    await say("PUBLISH news.de hello");
    await messages.getByRole("row", { name: /news\.de ?news\.\* hello/ }).waitFor();
    await messages.getByRole("button", { name: "Pause" }).click();
    await say("PUBLISH news.de unseen");
    await messages.getByText("Paused; 1 since then.").waitFor();
    same(await messages.getByText("unseen").count(), 0, "messages while it rests");
    await messages.getByRole("button", { name: "Go on" }).click();
    await messages.getByText("unseen").waitFor();
    await clean("views-messages");
    await messages.getByRole("button", { name: "Clear" }).click();
    await messages.getByText("0 messages shown").waitFor();
    await say("MONITOR", "GET watched-by-monitor");
    await messages.getByRole("row", { name: /MONITOR .*"GET" "watched-by-monitor"/ }).waitFor();
    await messages.getByText("the database works for it with each of them").waitFor();
    await clean("views-monitor");
    await messages.getByRole("button", { name: "Stop" }).click();
    await messages.getByText("You have stopped it.").waitFor();
    await replies(await say("PUBLISH news.de nobody"), "0");
    // Leaving the page ends MONITOR too.
    await say("MONITOR");
    await visit(page, "/databases/default/clients");
    await until("nobody monitors", async () => {
      const list = await page.evaluate(async () => (await fetch("/api/v1/databases/default/clients")).json());
      return list.length >= 0 && list.every((one) => !one.flags.includes("O"));
    });
  });
  done();
});
