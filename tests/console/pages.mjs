// Every page at two widths in both themes: no serious finding of axe-core, nothing wider than the window, no error.
// The node has load and keys of every type, so that the pages are not empty.
import { bench, logIn, main, openPage, overflow, picture, story, violations, visit } from "./harness.mjs";

const PAGES = {
  databases: "/databases",
  create: "/create",
  overview: "/databases/default",
  metrics: "/databases/default/metrics?range=1m",
  keys: "/databases/default/keys?key=s%3Aprofile",
  command: "/databases/default/command",
  slowlog: "/databases/default/slowlog",
  clients: "/databases/default/clients",
  backups: "/databases/default/backups",
  acl: "/databases/default/acl",
  analysis: "/databases/default/keys?view=analysis",
  replication: "/databases/default/replication",
  config: "/databases/default/config?search=slowlog",
  node: "/node",
  plan: "/plan?ram_price=8",
  benchmark: "/benchmark",
  alerts: "/alerts",
  events: "/events",
  audit: "/events?view=audit",
  users: "/users",
  account: "/account",
  missing: "/nothing-is-here",
};
const MODES = [[1280, "light"], [1280, "dark"], [390, "light"], [390, "dark"]];

export async function fill(page) {
  await page.goto("/databases/default/command");
  const line = page.locator("#line");
  for (const text of [
    "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 16", "HSET profile name Ada visits 1842", "RPUSH cart sku-1 sku-2", "ZADD board 12.5 ada 9 grace",
    "SADD tags flash ram", "XADD orders * total 12.50", "SET page:1 '[1,2,3]' EX 900",
  ]) {
    await line.fill(text);
    await line.press("Enter");
    await page.getByText(text, { exact: false }).last().waitFor();
    await page.waitForFunction(() => document.querySelector("#line").value === "");
  }
}

await main(async (node, browser) => {
  const load = bench(node.port, "--clients", "4", "--threads", "1", "--test-time", "3", "--ratio", "1:4", "--data-size", "500", "--key-maximum", "20000");
  const first = await openPage(browser, node);
  await logIn(first);
  await fill(first);
  const state = await first.context().storageState();
  await load;

  async function mode([width, theme]) {
    const { step, done, on } = story(`pages at ${width}, ${theme}`);
    const page = await openPage(browser, node, { viewport: { width, height: width < 500 ? 844 : 860 }, colorScheme: theme, storageState: state });
    on(page);
    await page.goto("/");
    for (const [name, path] of Object.entries(PAGES)) {
      await step(name, async () => {
        await visit(page, path);
        const found = await violations(page);
        if (found.length) throw new Error(`axe-core: ${found.join("; ")}`);
        const wide = await overflow(page);
        if (wide > 0) throw new Error(`${wide} pixels run out of the window`);
        await picture(page, `${name}-${width}-${theme}`, { fullPage: true });
      });
    }
    await page.context().close();
    done();
  }
  // Two at a time, because each waits half of its time.
  await Promise.all(MODES.slice(0, 2).map(mode));
  await Promise.all(MODES.slice(2).map(mode));
});
