// What the parts share: a node, a browser, and steps that are reported by name. Waits for conditions, never for a fixed time.
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, existsSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const packages = createRequire(join(process.env.PACKAGES, "package.json"));
const { chromium } = packages("playwright-core");
const axe = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");

export const PASSWORD = "a password of the tests";
/** Longer than anything here takes on a busy machine; reaching it is a failure. */
export const DEADLINE_MS = Number(process.env.CONSOLE_TEST_DEADLINE_MS ?? 120_000);

/** So many free ports, all different. */
export async function freePorts(count) {
  const servers = await Promise.all(
    Array.from({ length: count }, () => new Promise((done) => { const server = createServer().listen(0, "127.0.0.1", () => done(server)); })),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

export async function until(what, condition) {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain until ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A node with flash in memory where there is some; `start` and `stop` may be called again. */
export async function makeNode() {
  const dir = mkdtempSync(join(tmpdir(), "flintkv-console-"));
  const flash = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "flintkv-console-"));
  const [port, console_port] = await freePorts(2);
  const options = {
    port, "console-port": console_port, "console-password": PASSWORD, dir, save: "", "flash-path": flash,
    "memory-limit": "304mb", "ram-limit": "192mb", "io-threads": "2",
  };
  let child;
  let said = "";
  const node = {
    port,
    url: `http://127.0.0.1:${console_port}`,
    async start() {
      const args = ["server", ...Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)])];
      child = spawn(process.env.FLINTKV, args, { stdio: ["ignore", "pipe", "pipe"] });
      const keep = (text) => { said = (said + text).slice(-4000); };
      child.stdout.on("data", keep);
      child.stderr.on("data", keep);
      await until("the node is ready", async () => {
        if (child.exitCode !== null) throw new Error(`the node ended: ${said}`);
        return fetch(`${node.url}/health/ready`).then((response) => response.ok, () => false);
      });
    },
    async stop() {
      if (!child || child.exitCode !== null) return;
      const ended = new Promise((done) => child.once("exit", done));
      child.kill("SIGTERM");
      await ended;
    },
    /** It takes connections, and answers nothing. */
    freeze: () => child.kill("SIGSTOP"),
    thaw: () => child.kill("SIGCONT"),
    async remove() {
      node.thaw();
      await node.stop();
      rmSync(dir, { recursive: true, force: true });
      rmSync(flash, { recursive: true, force: true });
    },
    log: () => said,
  };
  await node.start();
  return node;
}

/** A command of an operator. */
export function flintkv(node, ...args) {
  return new Promise((done, fail) => {
    const env = { ...process.env, FLINTKV_PASSWORD: PASSWORD };
    execFile(process.env.FLINTKV, [...args, "--url", node.url, "--user", "admin"], { env, timeout: DEADLINE_MS }, (error, out, err) =>
      error ? fail(new Error(`flintkv ${args.join(" ")}: ${error.message} ${err}`)) : done(out),
    );
  });
}

/** flintkv bench against a port, to its end. */
export function bench(port, ...options) {
  return new Promise((done, fail) => {
    execFile(process.env.FLINTKV, ["bench", "--host", "127.0.0.1", "--port", String(port), "--hide-histogram", ...options], { timeout: 2 * DEADLINE_MS }, (error, out, err) =>
      error ? fail(new Error(`flintkv bench: ${error.message} ${err}`)) : done(out),
    );
  });
}

/** flintkv bench against a port; what is returned ends it, if its clients have not been ended before. */
export function benchUntilStopped(port, ...options) {
  let child;
  const ended = new Promise((done) => {
    child = execFile(process.env.FLINTKV, ["bench", "--host", "127.0.0.1", "--port", String(port), "--hide-histogram", "--test-time", "3600", ...options], () => done());
  });
  // A failed step does not reach this line.
  process.once("exit", () => child.kill("SIGKILL"));
  return () => {
    child.kill("SIGKILL");
    return ended;
  };
}

export async function openBrowser() {
  const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: flags });
}

/** A page that tells what went wrong inside it: errors of scripts, what the policy forbade, requests to other hosts. */
export async function openPage(browser, node, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, baseURL: node.url, acceptDownloads: true, ...options });
  context.setDefaultTimeout(DEADLINE_MS);
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`error in the page: ${error.message}`));
  page.on("console", (message) => {
    // Some steps are about failed requests.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(node.url) && !/^(blob|data):/.test(request.url())) wrong.push(`a request to ${request.url()}`);
  });
  page.wrong = wrong;
  return page;
}

/** Logs in, whatever comes then. */
export async function enter(page, user, password) {
  await page.goto("/login");
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}

export async function logIn(page, user = "admin", password = PASSWORD) {
  await enter(page, user, password);
  await page.getByRole("heading", { level: 1, name: "Databases" }).waitFor();
}

/** To another page of the console, as its links do. */
export async function visit(page, path) {
  await page.evaluate((to) => {
    history.pushState(null, "", to);
    dispatchEvent(new PopStateEvent("popstate"));
  }, path);
  await page.locator("h1").first().waitFor();
  await settled(page);
}

export const settled = (page) => page.waitForFunction(() => !document.querySelector(".spin") && document.querySelector("h1"));

/** Serious and critical violations, each on a line. */
export async function violations(page) {
  // Through the debugger, because the page's policy allows no foreign script.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    expression: `axe.run(document, { resultTypes: ["violations"] }).then((found) => JSON.stringify(found.violations
      .filter((one) => ["serious", "critical"].includes(one.impact))
      .map((one) => one.id + ": " + one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", "))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  await session.detach();
  if (exceptionDetails) throw new Error(`axe-core: ${exceptionDetails.text}`);
  return JSON.parse(result.value);
}

export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

export const picture = (page, name, options = {}) => page.screenshot({ path: join(process.env.PICTURES, `${name}.png`), ...options });

/** Steps by name; the first that fails ends the part, with a picture of what was there. */
export function story(part) {
  let passed = 0;
  let current;
  return {
    on(page) {
      current = page;
    },
    async step(name, run) {
      try {
        await run();
        if (current?.wrong.length) throw new Error(current.wrong.splice(0).join("; "));
        passed += 1;
      } catch (error) {
        if (current) await picture(current, `failed-${part}`).catch(() => {});
        console.log(`FAIL ${part}: ${name}: ${error.message.split("\n").slice(0, 6).join(" | ")}`);
        if (current) console.log(`     at ${current.url()}`);
        error.told = true;
        throw error;
      }
    },
    done() {
      console.log(`${part}: passed ${passed}`);
    },
  };
}

export function same(found, wanted, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${what}: ${a} instead of ${b}`);
}

export function that(truth, what) {
  if (!truth) throw new Error(what);
}

/** Runs a part with a node and a browser, and takes both away whatever happens. */
export async function main(run) {
  const node = await makeNode();
  const browser = await openBrowser();
  try {
    await run(node, browser);
  } catch (error) {
    process.exitCode = 1;
    if (!error.told) console.log(`FAIL ${error.stack}`);
    console.log(node.log().split("\n").slice(-5).join("\n"));
  } finally {
    await browser.close();
    await node.remove();
  }
}
