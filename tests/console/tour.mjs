// The pictures of docs/console.md: a node with two databases under load. Not a test.
//   FLINTKV=target/dist/flintkv tests/console/run.sh tour
import { realpathSync } from "node:fs";
import { join } from "node:path";
import { bench, logIn, main, openPage, visit } from "./harness.mjs";

const FOLDER = realpathSync(join(import.meta.dirname, "../../docs/console"));

await main(async (node, browser) => {
  const page = await openPage(browser, node, { viewport: { width: 1200, height: 760 } });
  const dialog = page.getByRole("dialog");
  const button = (name) => page.getByRole("button", { name, exact: true });
  const picture = (name) => page.screenshot({ path: join(FOLDER, `${name}.png`) });
  await logIn(page);

  await button("Create a database").click();
  await page.getByRole("textbox", { name: "Name" }).fill("shop");
  await page.getByLabel("Memory limit").fill("512 mb");
  await page.getByLabel("RAM limit").fill("20 %");
  await page.getByText("The node would create this database.").waitFor();
  await picture("create");
  await button("Create").click();
  await page.getByRole("heading", { level: 1, name: "shop" }).waitFor();
  const port = Number(/-p (\d+)/.exec(await page.locator(".copy-line code").first().textContent())[1]);

  const keys = ["--data-size", "900", "--key-maximum", "300000", "--key-prefix", "session:", "--threads", "1"];
  await bench(port, "--clients", "4", "--ratio", "1:0", "--key-pattern", "P:P", "--requests", "allkeys", "--pipeline", "16", ...keys);
  const load = Promise.all([
    bench(port, "--clients", "8", "--ratio", "1:9", "--key-pattern", "G:G", "--key-stddev", "40000", "--test-time", "50", ...keys),
    bench(node.port, "--clients", "2", "--ratio", "1:4", "--test-time", "50", "--rate-limiting", "400", ...keys),
  ]);
  await visit(page, "/databases/shop/command");
  const line = page.locator("#line");
  for (const text of ["HSET user:1001 name Ada visits 1842 city London", "ZADD board 9812.5 ada 9011 grace 120 edsger", "HGETALL user:1001", "ZRANGE board 0 -1 REV WITHSCORES"]) {
    await line.fill(text);
    await line.press("Enter");
    // The reply is there: a line that is run before is refused.
    await page.getByRole("log").getByText(text, { exact: true }).waitFor();
  }
  await line.pressSequentially("zran");
  await page.locator("#names li").first().waitFor();
  await picture("command");
  await visit(page, "/databases/shop/keys?pattern=user:1001");
  await page.locator(".list button", { hasText: "user:1001" }).click();
  await page.getByRole("cell", { name: "Ada", exact: true }).waitFor();
  await picture("keys");
  // Some graphs need time, so take the picture after forty seconds of data.
  await visit(page, "/databases/shop/metrics?range=1m&a=hit-ratio&b=ops");
  const points = async () => {
    const answer = await page.evaluate(async () => (await fetch(`/api/v1/databases/shop/metrics?from_ms=${Date.now() - 60_000}&to_ms=${Date.now()}&names=hit_ratio`)).json());
    return answer.series.hit_ratio.filter((value) => value !== null).length;
  };
  while ((await points()) < 40) await page.waitForResponse((response) => response.url().includes("/metrics?"));
  await picture("metrics");
  await visit(page, "/databases/shop");
  await page.locator("canvas").nth(3).waitFor();
  await picture("overview");
  await button("Resize").click();
  await dialog.getByLabel("RAM limit").fill("192 mb");
  await picture("resize");
  await page.keyboard.press("Escape");
  await visit(page, "/databases");
  await page.getByRole("row", { name: /shop/ }).getByText(/\d %/).waitFor();
  await picture("databases");
  await load;
});
