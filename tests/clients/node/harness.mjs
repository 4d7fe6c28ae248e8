// Owns how families are written, run and counted, for the programs in JavaScript. Never knows a library.

import { isDeepStrictEqual, inspect } from 'node:util';
import { readFileSync } from 'node:fs';

export const host = process.env.REDIS_HOST;
export const port = Number(process.env.REDIS_PORT);
export const tlsPort = Number(process.env.REDIS_TLS_PORT || 0);
export const socketPath = process.env.REDIS_SOCKET || null;
export const flintkv = process.env.REDIS_KIND !== 'redis';
const isCluster = ['cluster', 'shard'].includes(process.env.REDIS_FORM);
export const certificates = () => {
  const [ca, cert, key] = ['ca.crt', 'client.crt', 'client.key'].map((name) => readFileSync(`${process.env.REDIS_CERTS}/${name}`));
  return { ca, cert, key };
};

const PATIENCE_MS = 60_000;
const wanted = process.argv.slice(2);
let passed = 0;
let failed = 0;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Null prototypes, as libraries use them for replies, are plain objects here; a float's zero has no sign.
const plain = (value) => {
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Map) return plain(Object.fromEntries(value));
  if (value && typeof value === 'object' && !Buffer.isBuffer(value) && !(value instanceof Set) && !(value instanceof Error)) {
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
  }
  return value;
};

export const same = async (got, expected) => {
  const value = plain(await got);
  if (!isDeepStrictEqual(value, plain(expected))) {
    throw new Error(`got ${inspect(value, { breakLength: Infinity })}, expected ${inspect(expected, { breakLength: Infinity })}`);
  }
};

export const holds = (condition, what) => {
  if (!condition) throw new Error(`does not hold: ${what}`);
};

export const within = async (got, low, high) => {
  const value = await got;
  if (!(value >= low && value <= high)) throw new Error(`got ${inspect(value)}, expected ${low} to ${high}`);
};

export const fails = async (promise, text) => {
  let got;
  try {
    got = await promise;
  } catch (error) {
    if (!String(error.message).includes(text)) throw new Error(`error "${error.message}", expected "${text}"`);
    return error;
  }
  throw new Error(`got ${inspect(got)}, expected the error "${text}"`);
};

export const eventually = async (condition) => {
  for (const end = Date.now() + PATIENCE_MS; ; await sleep(5)) {
    if (await condition()) return;
    if (Date.now() > end) throw new Error(`it did not happen: ${condition}`);
  }
};

// Runs something once a client is blocked. `side` is another client, of any library.
export const later = async (side, act) => {
  try {
    // A client that has just got its reply may still be counted.
    await sleep(50);
    await eventually(async () => (await side.info('clients')).includes('blocked_clients:1\r\n'));
    // A node of a cluster counts a client whose command it has passed on, which may be on its way to the shard.
    if (isCluster) await sleep(300);
    await act();
  } catch (error) {
    console.error(error);
  }
};

export async function family(name, run) {
  if (wanted.length && !wanted.some((part) => name.includes(part))) return;
  let timer;
  const hangs = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('it hangs')), 2 * PATIENCE_MS);
  });
  try {
    await Promise.race([run(), hangs]);
    passed += 1;
  } catch (error) {
    failed += 1;
    const at = /(\w+\.mjs:\d+)/.exec((error.stack || '').split('\n').filter((line) => !line.includes('harness.mjs')).join('\n'));
    console.log(`FAIL ${name}: ${at ? at[1] : '?'}: ${String(error.message || error).replaceAll('\n', ' ')}`);
  } finally {
    clearTimeout(timer);
  }
}

// The unused methods of an object, except those that match.
export const unusedMethods = (object, used, except) => {
  const missing = new Set();
  for (let at = object; at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const name of Object.getOwnPropertyNames(at)) {
      const { value } = Object.getOwnPropertyDescriptor(at, name);
      if (typeof value === 'function' && !used.has(name) && !except.test(name)) missing.add(name);
    }
  }
  return [...missing].sort();
};

// The same object, with a record of the used methods.
export const noting = (object, used) =>
  new Proxy(object, {
    get(target, name) {
      used.add(name);
      const value = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });

export const finish = (partial) => {
  console.log(`passed ${passed}, failed ${failed}`);
  process.exit(failed ? 1 : 0);
};

export const complete = () => failed === 0 && wanted.length === 0;
