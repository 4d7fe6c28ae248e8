// The key browser with a million keys: prints the time of each view. Not a test of make test, because filling takes time.
//   tests/console/run.sh million         CONSOLE_TEST_KEYS says how many keys; a million without it
import { bench, DEADLINE_MS, logIn, main, openPage, story, that, until, visit } from "./harness.mjs";

const KEYS = Number(process.env.CONSOLE_TEST_KEYS ?? 1_000_000);
const shown = (count) => count.toLocaleString("en").replaceAll(",", "[  ,.]?");

await main(async (node, browser) => {
  const { step, done, on } = story("million");
  const page = await openPage(browser, node, { viewport: { width: 1440, height: 900 } });
  on(page);
  const list = page.getByRole("region", { name: "Keys", exact: true });
  const dialog = page.getByRole("dialog");
  const took = async (name, run) => {
    await step(name, async () => {
      const began = performance.now();
      await run();
      console.log(`  ${name}: ${((performance.now() - began) / 1000).toFixed(2)} s`);
    });
  };
  await logIn(page);
  await took(`${KEYS} keys are written`, () =>
    bench(node.port, "--clients", "4", "--threads", "1", "--ratio", "1:0", "--key-pattern", "P:P", "--requests", "allkeys", "--pipeline", "32", "--data-size", "16", "--key-minimum", "1", "--key-maximum", String(KEYS), "--key-prefix", "cart:"),
  );
  await took("the first page of the list", async () => {
    await visit(page, "/databases/default/keys");
    await list.getByRole("button", { name: /^cart:\d+/ }).first().waitFor();
  });
  await took("the tree", async () => {
    await list.getByRole("button", { name: "Tree" }).click();
    await list.getByRole("button", { name: /^cart/ }).first().waitFor();
  });
  await took("one key by its name", async () => {
    await visit(page, `/databases/default/keys?pattern=cart:${KEYS - 1}`);
    await list.getByRole("button", { name: new RegExp(`^cart:${KEYS - 1}`) }).waitFor();
  });
  await took("keys by a pattern that few match", async () => {
    await visit(page, `/databases/default/keys?pattern=*${KEYS - 2}`);
    await list.getByRole("button", { name: new RegExp(`^cart:${KEYS - 2}`) }).waitFor();
  });
  await took("the analysis of all keys", async () => {
    await visit(page, "/databases/default/keys?view=analysis");
    await page.getByRole("button", { name: "Analyse", exact: true }).click();
    // The analysis pauses three times as long as it works.
    await page.locator(".tag", { hasText: /^done$/ }).waitFor({ timeout: 10 * DEADLINE_MS });
  });
  await took("the preview of a deletion", async () => {
    await visit(page, "/databases/default/keys?pattern=cart:*");
    await list.getByRole("button", { name: "Delete the keys that match" }).click();
    await dialog.getByText(/keys in db 0 will be deleted/).waitFor();
    const text = await dialog.innerText();
    that(new RegExp(shown(KEYS)).test(text) || /1(\.0+)? M|1,000,000/.test(text), `the preview says ${text.slice(0, 200)}`);
  });
  await page.keyboard.press("Escape");
  await took("first paint of the console, from nothing", async () => {
    const fresh = await openPage(browser, node);
    await fresh.goto("/login");
    await fresh.getByRole("button", { name: "Log in" }).waitFor();
    const paint = await until("there is a paint", () =>
      fresh.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime),
    );
    console.log(`  first contentful paint: ${Math.round(paint)} ms`);
    await fresh.context().close();
  });
  done();
});
