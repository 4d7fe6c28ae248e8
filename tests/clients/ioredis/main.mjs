// ioredis against the server of the environment: every family over RESP2 and RESP3, one line for each that fails.

import { Redis, Command, ReplyError } from 'ioredis';
import {
  certificates, complete, eventually, fails, family, finish, flintkv, holds, host, later, noting, port, same, sleep, socketPath,
  tlsPort, unusedMethods, within,
} from './harness.mjs';

const used = new Set();
let protocol;
let open = [];

const raw = (options = {}) => {
  const made = new Redis({ host, port, protocol, ...options });
  made.on('error', () => {});
  open.push(made);
  return made;
};

const client = (options) => noting(raw(options), used);

// A family gets a client, a second client, and an empty database.
const story = (name, run) =>
  family(`resp${protocol} ${name}`, async () => {
    open = [];
    try {
      const [r, side] = [client(), client()];
      await r.flushdb();
      await run(r, side);
    } finally {
      for (const made of open) made.disconnect();
    }
  });

const sorted = async (promise) => [...(await promise)].sort();
const ok = (promise) => same(promise, 'OK');

async function values() {
  await story('strings', async (r) => {
    await ok(r.set('a', '1'));
    await same(r.get('a'), '1');
    await same(r.get('none'), null);
    await same(r.set('a', '2', 'NX'), null);
    await same(r.set('a', '3', 'EX', 100, 'XX', 'GET'), '1');
    await within(r.ttl('a'), 99, 100);
    await ok(r.set('a', '4', 'KEEPTTL'));
    await within(r.pttl('a'), 90_000, 100_000);
    await ok(r.setex('a', 20, '5'));
    await ok(r.psetex('a', 20_000, '6'));
    await same(r.setnx('a', 'x'), 0);
    await same(r.getset('a', '7'), '6');
    await same(r.getex('a', 'PX', 5000), '7');
    await same(r.getex('a', 'PERSIST'), '7');
    await same(r.getdel('a'), '7');
    await ok(r.mset({ m1: '1', m2: '2' }));
    await ok(r.mset(new Map([['m1', '1']])));
    await same(r.msetnx('m2', '3', 'm3', '3'), 0);
    await same(r.mget('m1', 'none', 'm2'), ['1', null, '2']);
    await same(r.append('m1', '23'), 3);
    await same(r.strlen('m1'), 3);
    await same(r.getrange('m1', 1, -1), '23');
    await same(r.substr('m1', 0, 0), '1');
    await same(r.setrange('m1', 5, 'z'), 6);
    await same(r.get('m1'), '123\0\0z');
    await same(r.incr('n'), 1);
    await same(r.incrby('n', 9), 10);
    await same(r.decr('n'), 9);
    await same(r.decrby('n', 19), -10);
    await same(r.incrbyfloat('n', 0.5), '-9.5');
    const error = await fails(r.incr('n'), 'value is not an integer or out of range');
    holds(error instanceof ReplyError, 'an error is a ReplyError');
    await r.mset('s1', 'ohmytext', 's2', 'mynewtext');
    await same(r.lcs('s1', 's2'), 'mytext');
    await same(r.lcs('s1', 's2', 'LEN'), 6);
    const bytes = Buffer.from([0, 255, 13, 10]);
    await ok(r.set(Buffer.from([1, 0, 255]), bytes));
    await same(r.getBuffer(Buffer.from([1, 0, 255])), bytes);
    const big = 'x'.repeat(300_000);
    await ok(r.set('big', big));
    await same(r.get('big'), big);
    const prefixed = client({ keyPrefix: 'p:' });
    await ok(prefixed.set('k', 'v'));
    await same(r.get('p:k'), 'v');
  });

  await story('keys', async (r) => {
    await r.mset({ k1: '1', k2: '2', other: '3' });
    await same(r.exists('k1', 'k2', 'none'), 2);
    await same(r.touch('k1', 'none'), 1);
    await same(sorted(r.keys('k*')), ['k1', 'k2']);
    await same(r.dbsize(), 3);
    holds(['k1', 'k2', 'other'].includes(await r.randomkey()), 'a random key');
    await same(r.type('k1'), 'string');
    await ok(r.rename('k1', 'k3'));
    await same(r.renamenx('k3', 'k2'), 0);
    await fails(r.rename('none', 'x'), 'no such key');
    await same(r.copy('k3', 'k4'), 1);
    await same(r.copy('k2', 'k4', 'DB', 1, 'REPLACE'), 1);
    const other = client({ db: 1 });
    await same(other.get('k4'), '2');
    await ok(r.swapdb(0, 1));
    await same(r.get('k4'), '2');
    await ok(r.swapdb(0, 1));
    await same(r.move('k4', 1), 0);
    await ok(other.flushdb('ASYNC'));
    await ok(other.select(0));
    await same(other.get('k2'), '2');
    await same(r.del('k2', 'none'), 1);
    await same(r.unlink(['k3', 'k4']), 2);
    await same(r.object('ENCODING', 'other'), 'int');
    await within(r.object('IDLETIME', 'other'), 0, 2);
    await within(r.memory('USAGE', 'other'), 10, 400);
    const now = Math.floor(Date.now() / 1000);
    await r.set('k', 'v');
    await same(r.expire('k', 100, 'NX'), 1);
    await same(r.pexpire('k', 90_000), 1);
    await same(r.expireat('k', now + 100), 1);
    await same(r.expiretime('k'), now + 100);
    await same(r.pexpireat('k', (now + 200) * 1000), 1);
    await same(r.pexpiretime('k'), (now + 200) * 1000);
    await same(r.persist('k'), 1);
    await same(r.pexpire('k', 10), 1);
    await sleep(30);
    await same(r.get('k'), null);
    await same(r.migrate('127.0.0.1', 1, 'none', 0, 100), 'NOKEY');
    await same(r.wait(0, 10), 0);
    // With a journal, the writes before may be durable already.
    if (flintkv) await within((await r.waitaof(0, 0, 10))[0], 0, 1);
  });

  await story('hashes', async (r) => {
    await same(r.hset('h', 'a', '1'), 1);
    await same(r.hset('h', { a: '2', b: '3' }), 1);
    await ok(r.hmset('h', new Map([['c', '4']])));
    await same(r.hsetnx('h', 'a', '9'), 0);
    await same(r.hget('h', 'a'), '2');
    await same(r.hmget('h', 'a', 'none'), ['2', null]);
    await same(r.hgetall('h'), { a: '2', b: '3', c: '4' });
    await same(r.hgetall('none'), {});
    await same(r.hlen('h'), 3);
    await same(sorted(r.hkeys('h')), ['a', 'b', 'c']);
    await same(sorted(r.hvals('h')), ['2', '3', '4']);
    await same(r.hexists('h', 'a'), 1);
    await same(r.hstrlen('h', 'a'), 1);
    await same(r.hincrby('h', 'a', 40), 42);
    await same(r.hincrbyfloat('h', 'a', 0.25), '42.25');
    await same(r.hdel('h', 'a', 'none'), 1);
    holds((await r.hrandfield('h', -20)).length === 20, 'random fields');
    await same(r.hscan('h', 0, 'MATCH', 'b'), ['0', ['b', '3']]);
    await r.hset('big', Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`field${n}`, 'v'.repeat(20)])));
    let count = 0;
    for await (const page of r.hscanStream('big', { count: 50 })) count += page.length;
    await same(count, 2000);
    if (flintkv) {
      const now = Math.floor(Date.now() / 1000);
      await same(r.hexpire('h', 100, 'FIELDS', 2, 'b', 'none'), [1, -2]);
      await same(r.httl('h', 'FIELDS', 1, 'b'), [100]);
      await same(r.hpexpire('h', 90_000, 'XX', 'FIELDS', 1, 'b'), [1]);
      await within((await r.hpttl('h', 'FIELDS', 1, 'b'))[0], 80_000, 90_000);
      await same(r.hexpireat('h', now + 200, 'FIELDS', 1, 'b'), [1]);
      await same(r.hexpiretime('h', 'FIELDS', 1, 'b'), [now + 200]);
      await same(r.hpexpireat('h', (now + 300) * 1000, 'FIELDS', 1, 'b'), [1]);
      await same(r.hpexpiretime('h', 'FIELDS', 1, 'b'), [(now + 300) * 1000]);
      await same(r.hpersist('h', 'FIELDS', 1, 'b'), [1]);
    }
  });

  await story('lists', async (r, side) => {
    await same(r.rpush('l', 'a', 'b', 'c'), 3);
    await same(r.lpush('l', 'z'), 4);
    await same(r.lpushx('none', 'a'), 0);
    await same(r.rpushx('l', 'd'), 5);
    await same(r.lrange('l', 0, -1), ['z', 'a', 'b', 'c', 'd']);
    await same(r.llen('l'), 5);
    await same(r.lindex('l', -1), 'd');
    await ok(r.lset('l', 0, 'Z'));
    await same(r.linsert('l', 'BEFORE', 'a', 'm'), 6);
    await same(r.lpop('l'), 'Z');
    await same(r.rpop('l', 1), ['d']);
    await same(r.lpos('l', 'b', 'RANK', 1, 'COUNT', 0), [2]);
    await same(r.lrem('l', 1, 'b'), 1);
    await ok(r.ltrim('l', 0, 1));
    await same(r.lmove('l', 'l2', 'LEFT', 'RIGHT'), 'm');
    await same(r.rpoplpush('l', 'l2'), 'a');
    await same(r.lmpop(2, 'none', 'l2', 'LEFT', 'COUNT', 5), ['l2', ['a', 'm']]);
    later(side, () => side.rpush('l', 'b'));
    await same(r.blpop('none', 'l', 5), ['l', 'b']);
    await same(r.brpop('l', 0.02), null);
    later(side, () => side.rpush('l', 'b'));
    await same(r.brpop('l', 5), ['l', 'b']);
    later(side, () => side.rpush('src', 'c'));
    await same(r.brpoplpush('src', 'dst', 5), 'c');
    later(side, () => side.rpush('src', 'd'));
    await same(r.blmove('src', 'dst', 'LEFT', 'RIGHT', 5), 'd');
    later(side, () => side.rpush('q', '1', '2', '3'));
    await same(r.blmpop(5, 1, 'q', 'LEFT', 'COUNT', 2), ['q', ['1', '2']]);
    // The library stops waiting by itself, a moment after the server does.
    const patient = client({ blockingTimeout: 200 });
    await same(patient.blpop('none', 0.1), null);
  });

  await story('sets', async (r) => {
    await same(r.sadd('s', 'a', 'b', 'c', 'a'), 3);
    await same(r.sadd('t', ['b', 'c', 'd']), 3);
    await same(sorted(r.smembers('s')), ['a', 'b', 'c']);
    await same(r.scard('s'), 3);
    await same(r.sismember('s', 'a'), 1);
    await same(r.smismember('s', 'a', 'z'), [1, 0]);
    await same(sorted(r.sinter('s', 't')), ['b', 'c']);
    await same(sorted(r.sunion('s', 't')), ['a', 'b', 'c', 'd']);
    await same(sorted(r.sdiff('s', 't')), ['a']);
    await same(r.sinterstore('i', 's', 't'), 2);
    await same(r.sunionstore('u', 's', 't'), 4);
    await same(r.sdiffstore('d', 's', 't'), 1);
    await same(r.sintercard(2, 's', 't', 'LIMIT', 1), 1);
    await same(r.smove('s', 't', 'a'), 1);
    await same(r.srem('t', 'a', 'none'), 1);
    holds((await r.srandmember('t', -9)).length === 9, 'random members');
    await same(r.spop('d'), 'a');
    await same(sorted(r.spop('t', 5)), ['b', 'c', 'd']);
    await same(r.sscan('i', 0, 'MATCH', 'b'), ['0', ['b']]);
    await r.sadd('big', Array.from({ length: 1000 }, (_, n) => `m${n}`));
    let count = 0;
    for await (const page of r.sscanStream('big', { count: 50 })) count += page.length;
    await same(count, 1000);
  });

  await story('sorted_sets', async (r, side) => {
    // With RESP2, scores are text. With RESP3, the library converts them to text.
    const n = (reply) => JSON.parse(JSON.stringify(reply), (_, part) => (typeof part === 'string' && part !== '' && !Number.isNaN(Number(part)) ? Number(part) : part)).flat(9);
    await same(r.zadd('z', 1, 'a', 2, 'b', 3, 'c'), 3);
    await same(r.zadd('z', 'GT', 'CH', 0, 'a'), 0);
    await same(n([await r.zadd('z', 'INCR', 0.5, 'a')]), [1.5]);
    await same(n([await r.zincrby('z', -0.5, 'a')]), [1]);
    await same(r.zcard('z'), 3);
    await same(r.zcount('z', '(1', '+inf'), 2);
    await same(n([await r.zscore('z', 'a')]), [1]);
    await same(n(await r.zmscore('z', 'a', 'none')), [1, null]);
    await same(r.zrank('z', 'c'), 2);
    await same(r.zrevrank('z', 'c'), 0);
    if (flintkv) await same(n(await r.zrank('z', 'c', 'WITHSCORE')), [2, 3]);
    await same(r.zrange('z', 0, 1), ['a', 'b']);
    await same(n(await r.zrange('z', 0, 0, 'WITHSCORES')), ['a', 1]);
    await same(r.zrange('z', '+inf', '(1', 'BYSCORE', 'REV', 'LIMIT', 0, 1), ['c']);
    await same(r.zrevrange('z', 0, 0), ['c']);
    await same(r.zrangebyscore('z', 2, '+inf'), ['b', 'c']);
    await same(r.zrevrangebyscore('z', '+inf', 2), ['c', 'b']);
    await same(r.zrangestore('dst', 'z', 0, 1), 2);
    holds((await r.zrandmember('z', -9)).length === 9, 'random members');
    await same(n(await r.zscan('z', 0, 'MATCH', 'a')), [0, 'a', 1]);
    await same(r.zrem('z', 'c', 'none'), 1);
    await same(n(await r.zpopmax('z')), ['b', 2]);
    await same(n(await r.zpopmin('z', 5)), ['a', 1]);
    await r.zadd('lex', ...'abcdef'.split('').flatMap((member) => [0, member]));
    await same(r.zrangebylex('lex', '[b', '(d'), ['b', 'c']);
    await same(r.zrevrangebylex('lex', '+', '[e'), ['f', 'e']);
    await same(r.zlexcount('lex', '-', '(c'), 2);
    await same(r.zremrangebylex('lex', '[a', '[b'), 2);
    await same(r.zremrangebyrank('lex', 0, 0), 1);
    await same(r.zremrangebyscore('lex', 0, 0), 3);
    await r.zadd('x', 1, 'p', 2, 'q');
    await r.zadd('y', 10, 'q', 20, 'r');
    await same(r.zunion(2, 'x', 'y'), ['p', 'q', 'r']);
    await same(n(await r.zinter(2, 'x', 'y', 'WITHSCORES')), ['q', 12]);
    await same(r.zdiff(2, 'x', 'y'), ['p']);
    await same(r.zunionstore('u', 2, 'x', 'y', 'WEIGHTS', 1, 2), 3);
    await same(r.zinterstore('u', 2, 'x', 'y', 'AGGREGATE', 'MAX'), 1);
    await same(r.zdiffstore('u', 2, 'x', 'y'), 1);
    await same(r.zintercard(2, 'x', 'y'), 1);
    await same(n(await r.zmpop(1, 'x', 'MIN')), ['x', 'p', 1]);
    later(side, () => side.zadd('b', 1, 'm'));
    await same(n(await r.bzpopmin('b', 5)), ['b', 'm', 1]);
    later(side, () => side.zadd('b', 1, 'm'));
    await same(n(await r.bzpopmax('b', 5)), ['b', 'm', 1]);
    later(side, () => side.zadd('b', 1, 'm'));
    await same(n(await r.bzmpop(5, 1, 'b', 'MAX')), ['b', 'm', 1]);
    await r.zadd('big', ...Array.from({ length: 500 }, (_, i) => [i, `m${i}`]).flat());
    let count = 0;
    for await (const page of r.zscanStream('big', { count: 50 })) count += page.length;
    await same(count, 1000);
  });

  await story('geo', async (r) => {
    await same(r.geoadd('g', 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania'), 2);
    await same(Number(await r.geodist('g', 'Palermo', 'Catania', 'KM')), 166.2742);
    await same(r.geohash('g', 'Palermo', 'Catania'), ['sqc8b49rny0', 'sqdtr74hyu0']);
    const [[longitude], none] = await r.geopos('g', 'Palermo', 'none');
    await within(Number(longitude), 13.3613, 13.3615);
    await same(none, null);
    await same(r.geosearch('g', 'FROMLONLAT', 15, 37, 'BYRADIUS', 200, 'km', 'ASC'), ['Catania', 'Palermo']);
    await same(r.geosearch('g', 'FROMMEMBER', 'Palermo', 'BYBOX', 400, 400, 'km', 'DESC', 'COUNT', 1), ['Catania']);
    await same(r.geosearchstore('dst', 'g', 'FROMLONLAT', 15, 37, 'BYRADIUS', 200, 'km', 'STOREDIST'), 2);
    await same(r.georadius('g', 15, 37, 200, 'km', 'ASC'), ['Catania', 'Palermo']);
    await same(r.georadius_ro('g', 15, 37, 200, 'km', 'ASC'), ['Catania', 'Palermo']);
    await same(r.georadiusbymember('g', 'Palermo', 9, 'km'), ['Palermo']);
    await same(r.georadiusbymember_ro('g', 'Palermo', 9, 'km'), ['Palermo']);
  });

  await story('bitmaps_and_hyperloglogs', async (r) => {
    await same(r.setbit('b', 7, 1), 0);
    await same(r.getbit('b', 7), 1);
    await same(r.bitcount('b', 0, 7, 'BIT'), 1);
    await same(r.bitpos('b', 1, 0, -1, 'BYTE'), 7);
    await same(r.bitop('NOT', 'c', 'b'), 1);
    await same(r.bitfield('f', 'SET', 'u8', 0, 200, 'OVERFLOW', 'FAIL', 'INCRBY', 'u8', 0, 100, 'GET', 'i8', '#0'), [0, null, -56]);
    await same(r.bitfield_ro('f', 'GET', 'u4', 0), [12]);
    await same(r.pfadd('p', ...Array.from({ length: 1000 }, (_, i) => i)), 1);
    await within(r.pfcount('p'), 970, 1030);
    await ok(r.pfmerge('m', 'p', 'none'));
  });

  await story('scan_sort_dump', async (r) => {
    await r.mset(Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`key${i}`, i])));
    const seen = new Set();
    for await (const page of r.scanStream({ match: 'key*', count: 30 })) for (const key of page) seen.add(key);
    await same(seen.size, 500);
    for await (const page of r.scanBufferStream({ match: 'key1' })) holds(page.every(Buffer.isBuffer), 'buffers');
    await same((await r.scan(0, 'COUNT', 10_000, 'TYPE', 'string'))[1].length, 500);
    await r.rpush('l', 3, 1, 2);
    await same(r.sort('l', 'LIMIT', 0, 2, 'DESC'), ['3', '2']);
    await same(r.sort('l', 'BY', 'nosort', 'GET', '#', 'GET', 'key*'), ['3', '3', '1', '1', '2', '2']);
    await same(r.sort_ro('l'), ['1', '2', '3']);
    await same(r.sort('l', 'STORE', 'sorted'), 3);
    const payload = await r.dumpBuffer('l');
    await ok(r.restore('copy', 0, payload));
    await same(r.lrange('copy', 0, -1), ['3', '1', '2']);
    await fails(r.restore('copy', 0, payload), 'BUSYKEY');
    await ok(r.restore('copy', 5000, payload, 'REPLACE', 'IDLETIME', 5));
    await fails(r.restore('bad', 0, 'nonsense'), 'DUMP payload version or checksum are wrong');
    holds((await r.dump('none')) === null, 'no dump of nothing');
  });

  await story('streams', async (r, side) => {
    await same(r.xadd('x', '1-1', 'a', '1'), '1-1');
    await same(r.xadd('x', 'MAXLEN', '~', 100, '1-2', 'b', '2'), '1-2');
    await same(r.xadd('none', 'NOMKSTREAM', '*', 'a', '1'), null);
    await same(r.xlen('x'), 2);
    await same(r.xrange('x', '-', '+'), [['1-1', ['a', '1']], ['1-2', ['b', '2']]]);
    await same(r.xrevrange('x', '+', '-', 'COUNT', 1), [['1-2', ['b', '2']]]);
    const ids = (reply) => (Array.isArray(reply) ? reply : Object.entries(reply)).flat(1).filter(Array.isArray).flat(1).map(([id]) => id);
    await same(ids(await r.xread('STREAMS', 'x', '0')), ['1-1', '1-2']);
    later(side, () => side.xadd('x', '2-1', 'c', '3'));
    await same(ids(await r.xread('BLOCK', 5000, 'STREAMS', 'x', '$')), ['2-1']);
    await same(r.xread('BLOCK', 20, 'STREAMS', 'x', '$'), null);
    await same(r.xdel('x', '1-1'), 1);
    await same(r.xtrim('x', 'MINID', '1-2'), 0);
    await ok(r.xsetid('x', '9-9'));
    await ok(r.xgroup('CREATE', 'x', 'g', '0'));
    await fails(r.xgroup('CREATE', 'x', 'g', '0'), 'BUSYGROUP');
    await same(ids(await r.xreadgroup('GROUP', 'g', 'c1', 'COUNT', 1, 'STREAMS', 'x', '>')), ['1-2']);
    await same((await r.xpending('x', 'g'))[0], 1);
    await same((await r.xpending('x', 'g', '-', '+', 10))[0].slice(0, 2), ['1-2', 'c1']);
    await same(r.xclaim('x', 'g', 'c2', 0, '1-2', 'JUSTID'), ['1-2']);
    await same((await r.xautoclaim('x', 'g', 'c3', 0, '0', 'JUSTID')).slice(0, 2), ['0-0', ['1-2']]);
    await same(r.xack('x', 'g', '1-2'), 1);
    holds(JSON.stringify(await r.xinfo('STREAM', 'x', 'FULL')).includes('c3'), 'XINFO');
    await same(r.xgroup('DESTROY', 'x', 'g'), 1);
  });
}

async function flow() {
  await story('pipelines_and_transactions', async (r, side) => {
    await same(await r.pipeline().set('a', 1).incr('a').get('none').hset('h', 'f', 'v').hgetall('h').exec(),
      [[null, 'OK'], [null, 2], [null, null], [null, 1], [null, { f: 'v' }]]);
    const [[error], [, after]] = await r.pipeline().lpush('a', 1).get('a').exec();
    holds(error.message.startsWith('WRONGTYPE'), 'an error of its own in a pipeline');
    await same(after, '2');
    const many = r.pipeline(Array.from({ length: 5000 }, () => ['incr', 'n']));
    await same((await many.exec()).at(-1), [null, 5000]);
    await same(await r.multi().set('a', 1).incr('a').exec(), [[null, 'OK'], [null, 2]]);
    await ok(r.multi({ pipeline: false }));
    await same(r.incr('a'), 'QUEUED');
    await same(await r.exec(), [[null, 3]]);
    await fails(r.multi().set('b', 'y').addCommand?.('x') ?? r.multi([['set', 'b']]).exec(), '');
    const one = client();
    await ok(one.watch('n', 'none'));
    await side.set('n', '1');
    await same(one.multi().set('n', '2').exec(), null);
    await ok(one.watch('n'));
    await ok(one.unwatch());
    await ok(one.multi({ pipeline: false }));
    await ok(one.discard());
    const auto = client({ enableAutoPipelining: true });
    await same((await Promise.all(Array.from({ length: 100 }, () => auto.incr('auto')))).at(-1), 100);
  });

  await story('scripts_and_functions', async (r) => {
    await same(r.eval('return {KEYS[1],ARGV[1],1,{"x"}}', 1, 'k', 'v'), ['k', 'v', 1, ['x']]);
    await r.set('k', 'v');
    await same(r.eval_ro("return redis.call('GET',KEYS[1])", 1, 'k'), 'v');
    const sha = await r.script('LOAD', "return redis.call('INCRBY',KEYS[1],ARGV[1])");
    await same(r.evalsha(sha, 1, 'n', 5), 5);
    await fails(r.evalsha_ro(sha, 1, 'n', 5), '');
    await same(r.script('EXISTS', sha, '0'.repeat(40)), [1, 0]);
    const own = raw();
    own.defineCommand('multiply', { numberOfKeys: 1, lua: "return redis.call('GET',KEYS[1]) * ARGV[1]" });
    await same(own.multiply('n', 3), 15);
    await ok(r.script('FLUSH'));
    await same(own.multiply('n', 4), 20);
    await same(own.pipeline().multiply('n', 5).exec(), [[null, 25]]);
    await fails(r.evalsha(sha, 1, 'n', 5), 'NOSCRIPT');
    await ok(r.function('FLUSH'));
    const library = "#!lua name=iolib\nredis.register_function{function_name='fetch', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}";
    await same(r.function('LOAD', library), 'iolib');
    await same(r.fcall('fetch', 1, 'n'), '5');
    await same(r.fcall_ro('fetch', 1, 'n'), '5');
    const payload = await r.callBuffer('FUNCTION', 'DUMP');
    await ok(r.function('DELETE', 'iolib'));
    await ok(r.function('RESTORE', payload));
    holds(JSON.stringify(await r.function('LIST')).includes('iolib'), 'FUNCTION LIST');
    await ok(r.function('FLUSH', 'ASYNC'));
  });

  await story('pubsub', async (r, side) => {
    const got = [];
    r.on('message', (channel, message) => got.push(`${channel}:${message}`));
    r.on('pmessage', (pattern, channel, message) => got.push(`${pattern}:${channel}:${message}`));
    r.on('smessage', (channel, message) => got.push(`s:${channel}:${message}`));
    await same(r.subscribe('a', 'b'), 2);
    await same(r.psubscribe('p*'), 3);
    await r.ssubscribe('s');
    await same(side.publish('a', '1'), 1);
    await same(side.publish('p1', '2'), 1);
    await same(side.spublish('s', '3'), 1);
    await eventually(() => got.length === 3);
    await same(got, ['a:1', 'p*:p1:2', 's:s:3']);
    await same(side.pubsub('CHANNELS', 'a*'), ['a']);
    await same(side.pubsub('NUMPAT'), 1);
    // After a cut connection, the client reconnects and subscribes again by itself.
    await side.client('KILL', 'TYPE', 'pubsub');
    await eventually(async () => (await side.publish('a', 'again')) === 1);
    await eventually(() => got.includes('a:again'));
    await same(r.unsubscribe('a', 'b'), 1);
    await same(r.punsubscribe('p*'), 0);
    await r.sunsubscribe('s');
    await same(r.get('none'), null);
  });

  await story('keyspace_events', async (r, side) => {
    await side.config('SET', 'notify-keyspace-events', 'KEA');
    const got = [];
    r.on('pmessage', (_, channel, message) => got.push(`${channel.split(':')[1]} ${message}`));
    await r.psubscribe('__keyevent@0__:*');
    await side.set('k', 'v');
    await side.rpush('l', 'v');
    await side.pexpire('k', 1);
    await side.del('l');
    await eventually(() => ['set k', 'rpush l', 'expire k', 'del l', 'expired k'].every((event) => got.includes(event)));
    await side.config('SET', 'notify-keyspace-events', '');
  });

  await story('monitor', async (r, side) => {
    // ioredis takes a line for a reply if it comes with the OK of MONITOR: until then nobody else may send anything, not even a handshake.
    await Promise.all([r.ping(), side.ping()]);
    const monitor = await r.monitor();
    monitor.on('error', () => {});
    const lines = [];
    monitor.on('monitor', (_, args) => lines.push(args.join(' ')));
    await eventually(async () => {
      await side.set('seen', 'by monitor');
      return lines.some((line) => /^set seen by monitor/i.test(line));
    });
    monitor.disconnect();
  });
}

async function server() {
  await story('basics', async (r) => {
    await same(r.ping('hi'), 'hi');
    await same(r.echo('hi'), 'hi');
    await ok(r.call('SET', 'a', '1'));
    await same(r.sendCommand(new Command('GET', ['a'], { replyEncoding: 'utf8' })), '1');
    await fails(r.call('NONSENSE', 'a'), "unknown command 'NONSENSE', with args beginning with: 'a'");
    await fails(r.call('GET'), "wrong number of arguments for 'get' command");
    holds((await r.time()).length === 2, 'TIME');
    holds((await r.info('server')).includes('redis_version:7.'), 'INFO');
    await same((await r.role())[0], 'master');
    holds((await r.lastsave()) > 0, 'LASTSAVE');
    await same(r.module('LIST'), []);
    await fails(r.cluster('INFO'), 'cluster support disabled');
    holds((await r.lolwut()).includes('ver.'), 'LOLWUT');
    await ok(r.config('SET', 'slowlog-max-len', 128));
    await fails(r.config('SET', 'nonsense', 1), 'Unknown option');
    holds((await r.slowlog('LEN')) >= 0, 'SLOWLOG');
    await same(r.latency('LATEST'), []);
    await same([await r.xlen('none'), await r.eval('return 1', 0)], [0, 1]);
    holds((await r.command('COUNT')) > 200, 'COMMAND COUNT');
    await same(r.command('GETKEYS', 'MSET', 'a', '1', 'b', '2'), ['a', 'b']);
  });

  await story('clients', async (r, side) => {
    const one = client({ connectionName: 'me' });
    await same(one.client('GETNAME'), 'me');
    const id = await one.client('ID');
    holds((await r.client('LIST', 'ID', id)).includes('name=me'), 'CLIENT LIST');
    if (flintkv) holds((await one.client('INFO')).includes('lib-name=ioredis'), 'the library names itself');
    later(side, () => side.client('UNBLOCK', id, 'ERROR'));
    await fails(one.blpop('none', 5), 'UNBLOCKED');
    await ok(one.client('TRACKING', 'ON', 'BCAST', 'PREFIX', 'user:'));
    await ok(one.client('TRACKING', 'OFF'));
    await same(r.client('KILL', 'ID', id), 1);
    // The client reconnects by itself, and sends commands without a reply again.
    await same(one.ping(), 'PONG');
    holds((await one.client('ID')) !== id, 'another connection');
    const quitting = client();
    await ok(quitting.quit());
    const lazy = client({ lazyConnect: true });
    await lazy.connect();
    await same(lazy.ping(), 'PONG');
    const copy = lazy.duplicate();
    await same(copy.ping(), 'PONG');
    copy.disconnect();
    const url = protocol === 2 ? new Redis(`redis://${host}:${port}/1`) : new Redis(`redis://${host}:${port}/1`, { protocol });
    open.push(url);
    await same(url.ping(), 'PONG');
    const hasty = client({ commandTimeout: 50 });
    await fails(hasty.blpop('none', 1), 'Command timed out');
    const closed = client({ host: '127.0.0.1', port: 1, retryStrategy: null, maxRetriesPerRequest: 0 });
    await fails(closed.ping(), '');
  });

  await story('acl', async (r) => {
    await same(r.acl('WHOAMI'), 'default');
    await ok(r.acl('SETUSER', 'worker', 'reset', 'on', '>secret', '~w:*', '&news', '+@string', '+acl|whoami', '+info', '+client', '-append'));
    const w = client({ username: 'worker', password: 'secret' });
    await same(w.acl('WHOAMI'), 'worker');
    await ok(w.set('w:1', 'v'));
    await fails(w.set('x', 'v'), 'NOPERM');
    await fails(w.append('w:1', 'v'), 'NOPERM');
    await ok(r.acl('DRYRUN', 'worker', 'GET', 'w:1'));
    const other = client();
    await ok(other.auth('worker', 'secret'));
    await fails(other.auth('worker', 'wrong'), 'WRONGPASS');
    await same(r.acl('DELUSER', 'worker'), 1);
  });

  if (socketPath) {
    await story('unix_socket', async () => {
      const one = client({ host: undefined, port: undefined, path: socketPath, retryStrategy: null, maxRetriesPerRequest: 0 });
      await ok(one.set('k', 'v'));
      await same(one.get('k'), 'v');
    });
  }

  if (tlsPort) {
    await story('tls', async () => {
      const { ca, cert, key } = certificates();
      const to = { host: 'localhost', port: tlsPort, retryStrategy: null, maxRetriesPerRequest: 0 };
      const one = client({ ...to, tls: { ca, cert, key } });
      const big = 'x'.repeat(100_000);
      await ok(one.set('k', big));
      await same(one.get('k'), big);
      await fails(client({ ...to, tls: { cert, key } }).ping(), '');
      await fails(client({ ...to, tls: { ca } }).ping(), '');
    });
  }
}

// Methods of modules, of clusters, of later Redis versions, of the event emitter or of the library itself, and methods that a test's server must not get.
const EXCEPT = new RegExp('^(_|constructor$|.*Buffer$|.*BufferStream$|ar[a-z]|v[a-z]+$|add|asking|backup|bgrewriteaof|bgsave|save$|blmovem|lmovem|'
  + 'create|debug|delex|digest|emit|end$|event|failover|flush|get[A-Z]|handle|hello|hgetdel|hgetex|hsetex|himport|hotkeys|increx|listener|msetex|'
  + 'off$|once$|on$|parseOptions|pfdebug|pfselftest|prepend|psync|raw|readonly|readwrite|recover|remove|replconf|replicaof|reset|restore-|'
  + 'sdiffcard|sunioncard|sentinel|set[A-Z]|shutdown|silent|slaveof|sync|trimslots|xackdel|xcfgset|xdelex|xidmp|xnack|defineCommand|'
  + 'send_command|duplicate|disconnect' + (flintkv ? ')' : '|h.?expire|h.?persist|h.?ttl|hpexpire|waitaof)'));

for (protocol of [2, 3]) {
  await values();
  await flow();
  await server();
}
if (complete()) {
  await family('surface', async () => same(unusedMethods(new Redis({ lazyConnect: true }), used, EXCEPT), []));
}
finish();
