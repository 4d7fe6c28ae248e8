// node-redis against the server of the environment: every family over RESP3 and RESP2, one line for each that fails.

import { createClient, createClientPool, defineScript, RESP_TYPES, WatchError, ErrorReply, SocketTimeoutError, ClientClosedError } from 'redis';
import {
  certificates, complete, eventually, fails, family, finish, flintkv, holds, host, later, noting, port, same, sleep, socketPath,
  tlsPort, unusedMethods, within,
} from './harness.mjs';

const used = new Set();
const url = `redis://${host}:${port}`;
let RESP;
let open = [];

const client = async (options = {}) => {
  const made = createClient({ url, RESP, ...options });
  made.on('error', () => {});
  open.push(made);
  await made.connect();
  return noting(made, used);
};

// A family gets a client, a second client, and an empty database.
const story = (name, run) =>
  family(`resp${RESP} ${name}`, async () => {
    open = [];
    try {
      const [r, side] = [await client(), await client()];
      await r.flushDb();
      await run(r, side);
    } finally {
      for (const made of open) if (made.isOpen) made.destroy();
    }
  });

const sorted = async (promise) => [...(await promise)].sort();

async function values() {
  await story('strings', async (r) => {
    await same(r.set('a', '1'), 'OK');
    await same(r.get('a'), '1');
    await same(r.get('none'), null);
    await same(r.set('a', '2', { condition: 'NX' }), null);
    await same(r.set('a', '3', { condition: 'XX', GET: true, expiration: { type: 'EX', value: 100 } }), '1');
    await within(r.ttl('a'), 99, 100);
    await same(r.set('a', '4', { expiration: 'KEEPTTL' }), 'OK');
    await within(r.pTTL('a'), 90_000, 100_000);
    await same(r.setEx('a', 20, '5'), 'OK');
    await same(r.pSetEx('a', 20_000, '6'), 'OK');
    await same(r.setNX('a', 'x'), 0);
    await same(r.getSet('a', '7'), '6');
    await same(r.getEx('a', { type: 'PX', value: 5000 }), '7');
    await same(r.getEx('a', { type: 'PERSIST' }), '7');
    await same(r.getDel('a'), '7');
    await same(r.mSet({ m1: '1', m2: '2' }), 'OK');
    await same(r.mSetNX([['m2', '3'], ['m3', '3']]), 0);
    await same(r.mGet(['m1', 'none', 'm2']), ['1', null, '2']);
    await same(r.append('m1', '23'), 3);
    await same(r.strLen('m1'), 3);
    await same(r.getRange('m1', 1, -1), '23');
    await same(r.setRange('m1', 5, 'z'), 6);
    await same(r.get('m1'), '123\0\0z');
    await same(r.incr('n'), 1);
    await same(r.incrBy('n', 9), 10);
    await same(r.decr('n'), 9);
    await same(r.decrBy('n', 19), -10);
    await same(r.incrByFloat('n', 0.5), '-9.5');
    await fails(r.incr('n'), 'value is not an integer or out of range');
    await r.mSet(['s1', 'ohmytext', 's2', 'mynewtext']);
    await same(r.lcs('s1', 's2'), 'mytext');
    await same(r.lcsLen('s1', 's2'), 6);
    await same(r.lcsIdx('s1', 's2', { MINMATCHLEN: 3 }), { matches: [[[4, 7], [5, 8]]], len: 6 });
    await same(r.lcsIdxWithMatchLen('s1', 's2', { MINMATCHLEN: 3 }), { matches: [[[4, 7], [5, 8], 4]], len: 6 });
    const big = 'x'.repeat(300_000);
    await r.set('big', big);
    await same(r.get('big'), big);
    const bytes = r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    await r.set('bytes', Buffer.from([0, 255, 13, 10]));
    await same(bytes.get('bytes'), Buffer.from([0, 255, 13, 10]));
  });

  await story('keys', async (r) => {
    await r.mSet({ k1: '1', k2: '2', other: '3' });
    await same(r.exists(['k1', 'k2', 'none']), 2);
    await same(r.touch(['k1', 'none']), 1);
    await same(sorted(r.keys('k*')), ['k1', 'k2']);
    await same(r.dbSize(), 3);
    holds(['k1', 'k2', 'other'].includes(await r.randomKey()), 'a random key');
    await same(r.type('k1'), 'string');
    await same(r.rename('k1', 'k3'), 'OK');
    await same(r.renameNX('k3', 'k2'), 0);
    await fails(r.rename('none', 'x'), 'no such key');
    await same(r.copy('k3', 'k4'), 1);
    await same(r.copy('k2', 'k4', { REPLACE: true }), 1);
    await same(r.copy('k2', 'k4', { DB: 1, REPLACE: true }), 1);
    const other = await client({ database: 1 });
    await same(other.get('k4'), '2');
    await same(other.flushDb('ASYNC'), 'OK');
    await same(r.move('k4', 1), 1);
    await same(r.swapDb(0, 1), 'OK');
    await same(r.get('k4'), '2');
    await same(r.swapDb(0, 1), 'OK');
    await other.flushDb();
    await other.select(0);
    await same(other.get('k2'), '2');
    await same(r.del(['k2', 'none']), 1);
    await same(r.unlink('k3'), 1);
    await same(r.objectEncoding('other'), 'int');
    await within(r.objectIdleTime('other'), 0, 2);
    holds((await r.objectRefCount('other')) > 0, 'a reference count');
    await fails(r.objectFreq('other'), 'An LFU maxmemory policy is not selected');
    await within(r.memoryUsage('other', { SAMPLES: 5 }), 10, 400);
    const now = Math.floor(Date.now() / 1000);
    await r.set('k', 'v');
    await same(r.expire('k', 100, 'NX'), 1);
    await same(r.expire('k', 50, 'GT'), 0);
    await same(r.pExpire('k', 90_000), 1);
    await same(r.expireAt('k', now + 100), 1);
    await same(r.expireTime('k'), now + 100);
    await same(r.pExpireAt('k', (now + 200) * 1000), 1);
    await same(r.pExpireTime('k'), (now + 200) * 1000);
    await same(r.persist('k'), 1);
    await same(r.pExpire('k', 10), 1);
    await sleep(30);
    await same(r.get('k'), null);
    await same(r.migrate('127.0.0.1', 1, 'none', 0, 100), 'NOKEY');
  });

  await story('hashes', async (r) => {
    await same(r.hSet('h', 'a', '1'), 1);
    await same(r.hSet('h', { a: '2', b: '3', c: '4' }), 2);
    await same(r.hSetNX('h', 'a', '9'), 0);
    await same(r.hGet('h', 'a'), '2');
    await same(r.hGet('h', 'none'), null);
    await same(r.hmGet('h', ['a', 'none']), ['2', null]);
    await same(r.hGetAll('h'), { a: '2', b: '3', c: '4' });
    await same(r.hGetAll('none'), {});
    await same(r.hLen('h'), 3);
    await same(sorted(r.hKeys('h')), ['a', 'b', 'c']);
    await same(sorted(r.hVals('h')), ['2', '3', '4']);
    await same(r.hExists('h', 'a'), 1);
    await same(r.hStrLen('h', 'a'), 1);
    await same(r.hIncrBy('h', 'a', 40), 42);
    await same(r.hIncrByFloat('h', 'a', 0.25), '42.25');
    await fails(r.hIncrBy('h', 'a', 1), 'hash value is not an integer');
    await same(r.hDel('h', ['a', 'none']), 1);
    holds(['b', 'c'].includes(await r.hRandField('h')), 'a random field');
    holds((await r.hRandFieldCount('h', -20)).length === 20, 'random fields');
    await same(sorted((await r.hRandFieldCountWithValues('h', 5)).map(({ field, value }) => field + value)), ['b3', 'c4']);
    await same(r.hScan('h', '0', { MATCH: 'b' }), { cursor: '0', entries: [{ field: 'b', value: '3' }] });
    await r.hSet('big', Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`field${n}`, 'v'.repeat(20)])));
    const seen = new Set();
    for await (const page of r.hScanIterator('big', { COUNT: 50 })) for (const { field } of page) seen.add(field);
    await same(seen.size, 1000);
  });

  if (flintkv) {
    await story('hash_field_expiry', async (r) => {
      const now = Math.floor(Date.now() / 1000);
      await r.hSet('h', { a: '1', b: '2', c: '3' });
      await same(r.hExpire('h', ['a', 'none'], 100), [1, -2]);
      await same(r.hTTL('h', ['a', 'b', 'none']), [100, -1, -2]);
      await same(r.hpExpire('h', 'a', 90_000, 'XX'), [1]);
      await within((await r.hpTTL('h', 'a'))[0], 80_000, 90_000);
      await same(r.hExpireAt('h', 'b', now + 200), [1]);
      await same(r.hExpireTime('h', 'b'), [now + 200]);
      await same(r.hpExpireAt('h', 'b', (now + 300) * 1000), [1]);
      await same(r.hpExpireTime('h', 'b'), [(now + 300) * 1000]);
      await same(r.hPersist('h', ['b', 'none']), [1, -2]);
      await same(r.hpExpire('h', 'a', 10), [1]);
      await sleep(30);
      await same(r.hGetAll('h'), { b: '2', c: '3' });
      const page = await r.hScanNoValues('h', '0');
      await same([...page.fields].sort(), ['b', 'c']);
      for await (const fields of r.hScanNoValuesIterator('h')) await same([...fields].sort(), ['b', 'c']);
      for await (const found of r.hScanValuesIterator('h')) await same([...found].sort(), ['2', '3']);
    });
  }

  await story('lists', async (r) => {
    await same(r.rPush('l', ['a', 'b', 'c']), 3);
    await same(r.lPush('l', 'z'), 4);
    await same(r.lPushX('none', 'a'), 0);
    await same(r.rPushX('l', 'd'), 5);
    await same(r.lRange('l', 0, -1), ['z', 'a', 'b', 'c', 'd']);
    await same(r.lLen('l'), 5);
    await same(r.lIndex('l', -1), 'd');
    await same(r.lSet('l', 0, 'Z'), 'OK');
    await fails(r.lSet('l', 99, 'x'), 'index out of range');
    await same(r.lInsert('l', 'BEFORE', 'a', 'm'), 6);
    await same(r.lPop('l'), 'Z');
    await same(r.rPop('l'), 'd');
    await same(r.lPopCount('l', 2), ['m', 'a']);
    await same(r.rPopCount('l', 2), ['c', 'b']);
    await same(r.lPop('none'), null);
    await r.rPush('l', ['a', 'b', 'a']);
    await same(r.lPos('l', 'a', { RANK: 2 }), 2);
    await same(r.lPosCount('l', 'a', 0), [0, 2]);
    await same(r.lRem('l', 1, 'a'), 1);
    await same(r.lTrim('l', 0, 0), 'OK');
    await same(r.lMove('l', 'l2', 'LEFT', 'RIGHT'), 'b');
    await same(r.rPopLPush('none', 'l2'), null);
    await same(r.lmPop(['none', 'l2'], 'LEFT', { COUNT: 5 }), ['l2', ['b']]);
    await same(r.lmPop('none', 'RIGHT'), null);
  });

  await story('blocking', async (r, side) => {
    later(side, () => side.rPush('l', 'b'));
    await same(r.blPop(['none', 'l'], 5), { key: 'l', element: 'b' });
    later(side, () => side.rPush('l', 'c'));
    await same(r.brPop('l', 5), { key: 'l', element: 'c' });
    await same(r.brPop('l', 0.02), null);
    later(side, () => side.rPush('src', 'd'));
    await same(r.brPopLPush('src', 'dst', 5), 'd');
    later(side, () => side.rPush('src', 'e'));
    await same(r.blMove('src', 'dst', 'LEFT', 'RIGHT', 5), 'e');
    later(side, () => side.rPush('q', ['1', '2', '3']));
    await same(r.blmPop(5, ['none', 'q'], 'LEFT', { COUNT: 2 }), ['q', ['1', '2']]);
    await side.zAdd('z', [{ value: 'a', score: 1 }, { value: 'b', score: 2 }]);
    await same(r.bzPopMin('z', 1), { key: 'z', value: 'a', score: 1 });
    await same(r.bzPopMax(['none', 'z'], 1), { key: 'z', value: 'b', score: 2 });
    later(side, () => side.zAdd('z', { value: 'c', score: 3 }));
    await same(r.bzmPop(5, 'z', 'MAX', { COUNT: 2 }), { key: 'z', members: [{ value: 'c', score: 3 }] });
    await same(r.bzmPop(0.02, 'z', 'MAX'), null);
  });

  await story('sets', async (r) => {
    await same(r.sAdd('s', ['a', 'b', 'c', 'a']), 3);
    await same(r.sAdd('t', ['b', 'c', 'd']), 3);
    await same(sorted(r.sMembers('s')), ['a', 'b', 'c']);
    await same(r.sCard('s'), 3);
    await same(r.sIsMember('s', 'a'), 1);
    await same(r.smIsMember('s', ['a', 'z']), [1, 0]);
    await same(sorted(r.sInter(['s', 't'])), ['b', 'c']);
    await same(sorted(r.sUnion(['s', 't'])), ['a', 'b', 'c', 'd']);
    await same(sorted(r.sDiff(['s', 't'])), ['a']);
    await same(r.sInterStore('i', ['s', 't']), 2);
    await same(r.sUnionStore('u', ['s', 't']), 4);
    await same(r.sDiffStore('d', ['s', 't']), 1);
    await same(r.sInterCard(['s', 't'], { LIMIT: 1 }), 1);
    await same(r.sMove('s', 't', 'a'), 1);
    await same(r.sRem('t', ['a', 'none']), 1);
    holds(['b', 'c', 'd'].includes(await r.sRandMember('t')), 'a random member');
    holds((await r.sRandMemberCount('t', -9)).length === 9, 'random members');
    await same(r.sPop('d'), 'a');
    await same(sorted(r.sPopCount('t', 5)), ['b', 'c', 'd']);
    await r.sAdd('big', Array.from({ length: 1000 }, (_, n) => `m${n}`));
    const seen = new Set();
    for await (const page of r.sScanIterator('big', { COUNT: 50 })) for (const member of page) seen.add(member);
    await same(seen.size, 1000);
    await same(r.sScan('i', '0', { MATCH: 'b' }), { cursor: '0', members: ['b'] });
  });

  await story('sorted_sets', async (r) => {
    const z = (value, score) => ({ value, score });
    await same(r.zAdd('z', [z('a', 1), z('b', 2), z('c', 3)]), 3);
    await same(r.zAdd('z', z('a', 0), { comparison: 'GT', CH: true }), 0);
    await same(r.zAddIncr('z', z('a', 0.5)), 1.5);
    await same(r.zIncrBy('z', -0.5, 'a'), 1);
    await same(r.zCard('z'), 3);
    await same(r.zCount('z', '(1', '+inf'), 2);
    await same(r.zScore('z', 'a'), 1);
    await same(r.zScore('z', 'none'), null);
    await same(r.zmScore('z', ['a', 'none']), [1, null]);
    await same(r.zRank('z', 'c'), 2);
    await same(r.zRevRank('z', 'c'), 0);
    if (flintkv) {
      await same(r.zRankWithScore('z', 'c'), { rank: 2, score: 3 });
      await same(r.zRevRankWithScore('z', 'c'), { rank: 0, score: 3 });
    }
    await same(r.zRange('z', 0, 1), ['a', 'b']);
    await same(r.zRange('z', '+inf', '(1', { BY: 'SCORE', REV: true, LIMIT: { offset: 0, count: 1 } }), ['c']);
    await same(r.zRangeWithScores('z', 0, 0), [z('a', 1)]);
    await same(r.zRangeByScore('z', 2, '+inf'), ['b', 'c']);
    await same(r.zRangeByScoreWithScores('z', 3, 3), [z('c', 3)]);
    await same(r.zRangeStore('dst', 'z', 0, 1), 2);
    await same(r.zRandMember('none'), null);
    holds((await r.zRandMemberCount('z', -9)).length === 9, 'random members');
    holds((await r.zRandMemberCountWithScores('z', 2)).length === 2, 'random members with scores');
    await same(r.zScan('z', '0', { MATCH: 'a' }), { cursor: '0', members: [z('a', 1)] });
    await same(r.zRem('z', ['c', 'none']), 1);
    await r.zAdd('z', [z('c', 3), z('inf', Infinity)]);
    await same(r.zPopMax('z'), z('inf', Infinity));
    await same(r.zPopMaxCount('z', 1), [z('c', 3)]);
    await same(r.zPopMin('z'), z('a', 1));
    await same(r.zPopMinCount('z', 5), [z('b', 2)]);
    await same(r.zPopMin('z'), null);
    await r.zAdd('lex', 'abcdef'.split('').map((value) => z(value, 0)));
    await same(r.zRangeByLex('lex', '[b', '(d'), ['b', 'c']);
    await same(r.zLexCount('lex', '-', '(c'), 2);
    await same(r.zRemRangeByLex('lex', '[a', '[b'), 2);
    await same(r.zRemRangeByRank('lex', 0, 0), 1);
    await same(r.zRemRangeByScore('lex', 0, 0), 3);
    await r.zAdd('x', [z('p', 1), z('q', 2)]);
    await r.zAdd('y', [z('q', 10), z('r', 20)]);
    await same(r.zUnion(['x', 'y']), ['p', 'q', 'r']);
    await same(r.zUnionWithScores([{ key: 'x', weight: 2 }, { key: 'y', weight: 0.5 }], { AGGREGATE: 'MAX' }), [z('p', 2), z('q', 5), z('r', 10)]);
    await same(r.zInter(['x', 'y']), ['q']);
    await same(r.zInterWithScores(['x', 'y']), [z('q', 12)]);
    await same(r.zDiff(['x', 'y']), ['p']);
    await same(r.zDiffWithScores(['x', 'y']), [z('p', 1)]);
    await same(r.zUnionStore('u', ['x', 'y']), 3);
    await same(r.zInterStore('u', ['x', 'y']), 1);
    await same(r.zDiffStore('u', ['x', 'y']), 1);
    await same(r.zInterCard(['x', 'y'], { LIMIT: 1 }), 1);
    await same(r.zmPop(['none', 'x'], 'MIN', { COUNT: 1 }), { key: 'x', members: [z('p', 1)] });
    await fails(r.zCount('x', 'y', 1), 'min or max is not a float');
    await r.zAdd('big', Array.from({ length: 500 }, (_, n) => z(`m${n}`, n)));
    const seen = new Set();
    for await (const page of r.zScanIterator('big', { COUNT: 50 })) for (const { value } of page) seen.add(value);
    await same(seen.size, 500);
  });

  await story('geo', async (r) => {
    await same(r.geoAdd('g', [
      { longitude: 13.361389, latitude: 38.115556, member: 'Palermo' },
      { longitude: 15.087269, latitude: 37.502669, member: 'Catania' },
    ]), 2);
    await same(r.geoDist('g', 'Palermo', 'Catania', 'km'), 166.2742);
    await same(r.geoHash('g', ['Palermo', 'Catania']), ['sqc8b49rny0', 'sqdtr74hyu0']);
    const [palermo, none] = await r.geoPos('g', ['Palermo', 'none']);
    await within(Number(palermo.longitude), 13.3613, 13.3615);
    await same(none, null);
    const from = { longitude: 15, latitude: 37 };
    const by = { radius: 200, unit: 'km' };
    await same(r.geoSearch('g', from, by, { SORT: 'ASC' }), ['Catania', 'Palermo']);
    await same(r.geoSearch('g', 'Palermo', { width: 400, height: 400, unit: 'km' }, { SORT: 'DESC', COUNT: 1 }), ['Catania']);
    const [first] = await r.geoSearchWith('g', from, by, ['WITHDIST', 'WITHCOORD', 'WITHHASH'], { SORT: 'ASC' });
    await same([first.member, Number(first.distance)], ['Catania', 56.4413]);
    await same(r.geoSearchStore('dst', 'g', from, by, { STOREDIST: true }), 2);
    await same(sorted(r.geoRadius('g', from, 200, 'km')), ['Catania', 'Palermo']);
    await same(sorted(r.geoRadiusRo('g', from, 200, 'km')), ['Catania', 'Palermo']);
    holds((await r.geoRadiusWith('g', from, 200, 'km', ['WITHDIST'])).length === 2, 'GEORADIUS WITHDIST');
    holds((await r.geoRadiusRoWith('g', from, 200, 'km', ['WITHDIST'])).length === 2, 'GEORADIUS_RO WITHDIST');
    await same(r.geoRadiusStore('g', from, 200, 'km', 'dst'), 2);
    await same(r.geoRadiusByMember('g', 'Palermo', 9, 'km'), ['Palermo']);
    await same(r.geoRadiusByMemberRo('g', 'Palermo', 9, 'km'), ['Palermo']);
    holds((await r.geoRadiusByMemberWith('g', 'Palermo', 9, 'km', ['WITHDIST'])).length === 1, 'WITHDIST');
    holds((await r.geoRadiusByMemberRoWith('g', 'Palermo', 9, 'km', ['WITHDIST'])).length === 1, 'WITHDIST');
    await same(r.geoRadiusByMemberStore('g', 'Palermo', 9, 'km', 'dst'), 1);
  });

  await story('bitmaps_and_hyperloglogs', async (r) => {
    await same(r.setBit('b', 7, 1), 0);
    await same(r.getBit('b', 7), 1);
    await same(r.bitCount('b', { start: 0, end: 7, mode: 'BIT' }), 1);
    await same(r.bitPos('b', 1, 0, -1, 'BYTE'), 7);
    await same(r.bitOp('NOT', 'c', 'b'), 1);
    await same(r.bitField('f', [
      { operation: 'SET', encoding: 'u8', offset: 0, value: 200 },
      { operation: 'OVERFLOW', behavior: 'FAIL' },
      { operation: 'INCRBY', encoding: 'u8', offset: 0, increment: 100 },
      { operation: 'GET', encoding: 'i8', offset: '#0' },
    ]), [0, null, -56]);
    await same(r.bitFieldRo('f', [{ encoding: 'u4', offset: 0 }]), [12]);
    await same(r.pfAdd('p', Array.from({ length: 1000 }, (_, n) => String(n))), 1);
    await within(r.pfCount('p'), 970, 1030);
    await same(r.pfMerge('m', ['p', 'none']), 'OK');
    await within(r.pfCount(['m', 'p']), 970, 1030);
  });

  await story('scan_sort_dump', async (r) => {
    for (let n = 0; n < 500; n += 1) r.set(`key${n}`, String(n));
    const seen = new Set();
    for await (const page of r.scanIterator({ MATCH: 'key*', COUNT: 30 })) for (const key of page) seen.add(key);
    await same(seen.size, 500);
    await same((await r.scan('0', { TYPE: 'string', COUNT: 10_000 })).keys.length, 500);
    await r.rPush('l', ['3', '1', '2']);
    await same(r.sort('l', { DIRECTION: 'DESC', LIMIT: { offset: 0, count: 2 } }), ['3', '2']);
    await same(r.sort('l', { BY: 'nosort', GET: ['#', 'key*'] }), ['3', '3', '1', '1', '2', '2']);
    await same(r.sortRo('l', { ALPHA: true }), ['1', '2', '3']);
    await same(r.sortStore('l', 'sorted', {}), 3);
    const bytes = noting(r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }), used);
    const payload = await bytes.dump('l');
    await same(r.restore('copy', 0, payload), 'OK');
    await same(r.lRange('copy', 0, -1), ['3', '1', '2']);
    await fails(r.restore('copy', 0, payload), 'BUSYKEY');
    await same(r.restore('copy', 5000, payload, { REPLACE: true, IDLETIME: 5 }), 'OK');
    await fails(r.restore('bad', 0, 'nonsense'), 'DUMP payload version or checksum are wrong');
  });

  await story('streams', async (r, side) => {
    await same(r.xAdd('x', '1-1', { a: '1' }), '1-1');
    await same(r.xAdd('x', '1-2', { b: '2', c: '3' }), '1-2');
    await same(r.xAdd('x', '2-*', { d: '4' }, { TRIM: { strategy: 'MAXLEN', strategyModifier: '=', threshold: 10 } }), '2-0');
    await same(r.xAddNoMkStream('none', '*', { a: '1' }), null);
    await fails(r.xAdd('x', '1-1', { a: '1' }), 'equal or smaller than the target stream top item');
    await same(r.xLen('x'), 3);
    await same((await r.xRange('x', '-', '+', { COUNT: 2 })).map(({ id, message }) => [id, message]), [['1-1', { a: '1' }], ['1-2', { b: '2', c: '3' }]]);
    await same((await r.xRevRange('x', '+', '-', { COUNT: 1 }))[0].id, '2-0');
    await same(r.xDel('x', ['1-2', '9-9']), 1);
    const names = (reply) => Object.fromEntries((Array.isArray(reply) ? reply.map(({ name, messages }) => [name, messages]) : Object.entries(reply))
      .map(([name, messages]) => [name, messages.map(({ id }) => id)]));
    await same(names(await r.xRead([{ key: 'x', id: '0' }, { key: 'none', id: '0' }], { COUNT: 5 })), { x: ['1-1', '2-0'] });
    await same(r.xRead({ key: 'x', id: '$' }, { BLOCK: 20 }), null);
    later(side, () => side.xAdd('x', '3-1', { e: '5' }));
    await same(names(await r.xRead({ key: 'x', id: '$' }, { BLOCK: 5000 })), { x: ['3-1'] });
    await same(r.xTrim('x', 'MAXLEN', 2), 1);
    await same(r.xTrim('x', 'MINID', '3-0', { strategyModifier: '~', LIMIT: 10 }), 0);
    const info = await r.xInfoStream('x');
    await same([info.length, info['last-generated-id'], info['entries-added']], [2, '3-1', 4]);
    await same(r.xSetId('x', '9-9'), 'OK');
    await same(r.xGroupCreate('x', 'g', '0', { MKSTREAM: true }), 'OK');
    await fails(r.xGroupCreate('x', 'g', '0'), 'BUSYGROUP');
    await same(r.xGroupCreateConsumer('x', 'g', 'idle'), 1);
    await same(names(await r.xReadGroup('g', 'c1', { key: 'x', id: '>' }, { COUNT: 1 })), { x: ['2-0'] });
    await same(names(await r.xReadGroup('g', 'c2', { key: 'x', id: '>' })), { x: ['3-1'] });
    const pending = await r.xPending('x', 'g');
    await same([pending.pending, pending.firstId, pending.lastId], [2, '2-0', '3-1']);
    await same((await r.xPendingRange('x', 'g', '-', '+', 10, { consumer: 'c1' })).map(({ id, consumer, deliveriesCounter }) => [id, consumer, deliveriesCounter]), [['2-0', 'c1', 1]]);
    await same((await r.xClaim('x', 'g', 'c2', 0, '2-0'))[0].id, '2-0');
    await same(r.xClaimJustId('x', 'g', 'c2', 0, '2-0', { RETRYCOUNT: 7 }), ['2-0']);
    const claimed = await r.xAutoClaim('x', 'g', 'c3', 0, '0', { COUNT: 1 });
    await same([claimed.nextId, claimed.messages[0].id], ['3-1', '2-0']);
    await same((await r.xAutoClaimJustId('x', 'g', 'c3', 0, '0')).messages, ['2-0', '3-1']);
    await same((await r.xInfoGroups('x'))[0].pending, 2);
    await same((await r.xInfoConsumers('x', 'g')).length, 4);
    await same(r.xAck('x', 'g', '2-0'), 1);
    await same(r.xGroupDelConsumer('x', 'g', 'c3'), 1);
    await same(r.xGroupSetId('x', 'g', '0'), 'OK');
    await fails(r.xReadGroup('none', 'c', { key: 'x', id: '>' }), 'NOGROUP');
    await same(r.xGroupDestroy('x', 'g'), 1);
  });
}

const LIBRARY = `#!lua name=nodelib
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)
redis.register_function{function_name='fetch', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}`;

async function flow() {
  await story('pipelines_and_transactions', async (r, side) => {
    // Commands of one turn of the event loop are sent together.
    const replies = await Promise.all(Array.from({ length: 5000 }, () => r.incr('n')));
    await same(replies.at(-1), 5000);
    await same(r.multi().set('a', '1').incr('a').hSet('h', { f: 'v' }).hGetAll('h').exec(), ['OK', 2, 1, { f: 'v' }]);
    await same(r.multi().get('a').get('none').execAsPipeline(), ['2', null]);
    await same(r.multi().addCommand(['SET', 'a', '5']).get('a').exec(), ['OK', '5']);
    await fails(r.multi().set('a', 'x').incr('a').set('b', 'y').exec(), '');
    await same(r.get('b'), 'y');
    await fails(r.multi().addCommand(['SET', 'b']).set('b', 'z').exec(), '');
    await same(r.get('b'), 'y');
    const one = await client();
    await one.watch(['n', 'none']);
    await side.set('n', '1');
    const error = await fails(one.multi().set('n', '2').exec(), '');
    holds(error instanceof WatchError, 'the error is a WatchError');
    await one.watch('n');
    await same(one.unwatch(), 'OK');
    await same(one.multi().incr('n').exec(), [2]);
  });

  await story('pools', async () => {
    const pool = createClientPool({ url, RESP }, { minimum: 1, maximum: 4, acquireTimeout: 60_000 });
    pool.on('error', () => {});
    await pool.connect();
    await Promise.all(Array.from({ length: 400 }, () => pool.incr('shared')));
    await same(pool.get('shared'), '400');
    const outcome = await pool.execute(async (one) => {
      await one.watch('shared');
      return one.multi().incr('shared').exec();
    });
    await same(outcome, [401]);
    await pool.close();
  });

  await story('scripts_and_functions', async (r) => {
    await same(r.eval('return {KEYS[1],ARGV[1],1,{"x"}}', { keys: ['k'], arguments: ['v'] }), ['k', 'v', 1, ['x']]);
    await r.set('k', 'v');
    await same(r.evalRo("return redis.call('GET',KEYS[1])", { keys: ['k'] }), 'v');
    await fails(r.evalRo("return redis.call('DEL',KEYS[1])", { keys: ['k'] }), 'Write commands are not allowed from read-only scripts');
    const sha = await r.scriptLoad("return redis.call('INCRBY',KEYS[1],ARGV[1])");
    await same(r.evalSha(sha, { keys: ['n'], arguments: ['5'] }), 5);
    await fails(r.evalShaRo(sha, { keys: ['n'], arguments: ['5'] }), '');
    await same(r.scriptExists([sha, '0'.repeat(40)]), [1, 0]);
    await same(r.scriptFlush(), 'OK');
    await fails(r.evalSha(sha, { keys: ['n'], arguments: ['5'] }), 'NOSCRIPT');
    await fails(r.scriptKill(), 'NOTBUSY');
    const scripted = await client({
      scripts: {
        multiply: defineScript({
          SCRIPT: "return redis.call('GET',KEYS[1]) * ARGV[1]",
          NUMBER_OF_KEYS: 1,
          parseCommand(parser, key, by) {
            parser.pushKey(key);
            parser.push(String(by));
          },
          transformReply: (reply) => reply,
        }),
      },
    });
    await same(scripted.multiply('n', 3), 15);
    await same(scripted.multi().multiply('n', 4).exec(), [20]);
    await r.functionFlush();
    await same(r.functionLoad(LIBRARY), 'nodelib');
    await fails(r.functionLoad(LIBRARY), "Library 'nodelib' already exists");
    await same(r.functionLoad(LIBRARY, { REPLACE: true }), 'nodelib');
    await same(r.fCall('put', { keys: ['k'], arguments: ['w'] }), 'OK');
    await same(r.fCallRo('fetch', { keys: ['k'] }), 'w');
    await fails(r.fCallRo('put', { keys: ['k'], arguments: ['w'] }), 'write flag');
    await same((await r.functionList({ LIBRARYNAME: 'node*' }))[0].library_name, 'nodelib');
    await same((await r.functionListWithCode())[0].library_code, LIBRARY);
    await same((await r.functionStats()).running_script, null);
    const bytes = noting(r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }), used);
    const payload = await bytes.functionDump();
    await same(r.functionDelete('nodelib'), 'OK');
    await same(r.functionRestore(payload, { mode: 'REPLACE' }), 'OK');
    await same(r.fCall('fetch', { keys: ['k'] }), 'w');
    await fails(r.functionKill(), 'NOTBUSY');
    await same(r.functionFlush('ASYNC'), 'OK');
  });

  await story('pubsub', async (r, side) => {
    const got = [];
    const hear = (message, channel) => got.push(`${channel}:${message}`);
    await r.subscribe('a', hear);
    await r.pSubscribe('p*', hear);
    await r.sSubscribe('s', hear);
    await same(side.publish('a', '1'), 1);
    await same(side.publish('p1', '2'), 1);
    await same(side.sPublish('s', '3'), 1);
    await eventually(() => got.length === 3);
    await same(got, ['a:1', 'p1:2', 's:3']);
    await same(side.pubSubChannels(), ['a']);
    await same(side.pubSubNumSub(['a', 'none']), { a: 1, none: 0 });
    await same(side.pubSubNumPat(), 1);
    await same(side.pubSubShardChannels(), ['s']);
    await same(side.pubSubShardNumSub(['s']), { s: 1 });
    // After a cut connection, the client reconnects and subscribes again by itself.
    await side.clientKill({ filter: 'TYPE', type: 'pubsub' });
    await eventually(async () => (await side.publish('a', 'again')) === 1);
    await eventually(() => got.includes('a:again'));
    await r.unsubscribe('a');
    await r.pUnsubscribe();
    await r.sUnsubscribe();
    await same(r.get('none'), null);
  });

  await story('keyspace_events', async (r, side) => {
    await side.configSet('notify-keyspace-events', 'KEA');
    const got = [];
    await r.pSubscribe('__keyevent@0__:*', (message, channel) => got.push(`${channel.split(':')[1]} ${message}`));
    await side.set('k', 'v');
    await side.hSet('h', 'f', 'v');
    await side.pExpire('h', 1);
    await side.del('k');
    await eventually(() => ['set k', 'hset h', 'expire h', 'del k', 'expired h'].every((event) => got.includes(event)));
    await side.configSet('notify-keyspace-events', '');
  });

  await story('monitor', async (r, side) => {
    const lines = [];
    await r.monitor((line) => lines.push(line));
    await eventually(async () => {
      await side.set('seen', 'by monitor');
      return lines.some((line) => line.includes('"seen" "by monitor"'));
    });
    await r.reset();
    await same(r.ping(), 'PONG');
  });

  if (RESP === 3) {
    await story('client_side_caching', async (r, side) => {
      const caching = { clientSideCache: { ttl: 0, maxEntries: 100, evictPolicy: 'LRU' } };
      const one = await client({ ...caching, socket: { reconnectStrategy: false } });
      await side.set('k', '1');
      await same(one.get('k'), '1');
      await same(one.get('k'), '1');
      await side.set('k', '2');
      await eventually(async () => (await one.get('k')) === '2');
      await side.del('k');
      await eventually(async () => (await one.get('k')) === null);
    });
  }

  await story('tracking', async (r) => {
    const one = await client();
    await same(one.clientTracking(true, { BCAST: true, PREFIX: ['user:', 'item:'], NOLOOP: true }), 'OK');
    holds([...(await one.clientTrackingInfo()).flags].includes('bcast'), 'tracking is on');
    await same(one.clientTracking(false), 'OK');
    await same(one.clientTracking(true, { OPTIN: true }), 'OK');
    await same(one.clientCaching(true), 'OK');
    await same(one.clientGetRedir(), 0);
  });
}

async function server() {
  await story('basics', async (r) => {
    await same(r.ping('hi'), 'hi');
    await same(r.echo('hi'), 'hi');
    await same(r.sendCommand(['SET', 'a', '1']), 'OK');
    const error = await fails(r.sendCommand(['NONSENSE', 'a']), "unknown command 'NONSENSE', with args beginning with: 'a'");
    holds(error instanceof ErrorReply, 'an error is an ErrorReply');
    await fails(r.sendCommand(['GET']), "wrong number of arguments for 'get' command");
    holds((await r.time()) !== undefined, 'TIME');
    holds((await r.info()).includes('redis_version:7.'), 'INFO');
    holds((await r.info('memory')).includes('used_memory:'), 'INFO memory');
    await same((await r.role()).role ?? (await r.role())[0], 'master');
    await same(r.wait(0, 10), 0);
    await same((await r.hello(RESP)).proto, RESP);
    holds((await r.lastSave()) > 0, 'LASTSAVE');
    await same(r.moduleList(), []);
    await fails(r.clusterInfo(), 'cluster support disabled');
  });

  await story('configuration', async (r) => {
    await same(Object.keys(await r.configGet('hash-max-listpack-*')).sort(), ['hash-max-listpack-entries', 'hash-max-listpack-value']);
    await same(r.configSet('slowlog-max-len', '128'), 'OK');
    await same(r.configSet({ 'slowlog-max-len': '128', timeout: '0' }), 'OK');
    await fails(r.configSet('nonsense', '1'), 'Unknown option');
    await same(r.configResetStat(), 'OK');
    await fails(r.configRewrite(), 'without a config file');
    await same(r.latencyLatest(), []);
    await same(r.latencyHistory('command'), []);
    holds((await r.latencyDoctor()).length > 20, 'LATENCY DOCTOR');
    await fails(r.latencyGraph('command'), 'No samples available');
    await same(r.latencyReset(), 0);
    await r.set('k', 'v');
    holds('set' in (await r.latencyHistogram('set')), 'LATENCY HISTOGRAM');
    holds((await r.memoryDoctor()).length > 5, 'MEMORY DOCTOR');
    holds((await r.memoryMallocStats()).length > 5, 'MEMORY MALLOC-STATS');
    await same(r.memoryPurge(), 'OK');
    holds((await r.memoryStats())['peak.allocated'] > 0, 'MEMORY STATS');
  });

  await story('clients', async (r, side) => {
    const one = await client({ name: 'me' });
    await same(one.clientGetName(), 'me');
    await same(one.clientSetName('you'), 'OK');
    const id = await one.clientId();
    await same((await one.clientInfo()).name, 'you');
    if (flintkv) {
      holds((await one.clientInfo()).libName.startsWith('node-redis'), 'the library names itself');
      await same(one.clientNoTouch(true), 'OK');
    }
    await same(one.clientNoEvict(true), 'OK');
    holds((await r.clientList()).some(({ name }) => name === 'you'), 'CLIENT LIST');
    holds((await r.clientList({ ID: [String(id)] })).length === 1, 'CLIENT LIST ID');
    later(side, () => side.clientUnblock(id));
    await same(one.blPop('none', 5), null);
    later(side, () => side.clientUnblock(id, 'ERROR'));
    await fails(one.blPop('none', 5), 'UNBLOCKED');
    await same(r.clientPause(20, 'WRITE'), 'OK');
    await same(r.clientUnpause(), 'OK');
    await same(r.clientKill({ filter: 'ID', id }), 1);
    await eventually(async () => (await one.clientId()) !== id);
    await same(one.ping(), 'PONG');
  });

  await story('commands', async (r) => {
    await same([await r.xLen('none'), await r.eval('return 1')], [0, 1]);
    const get = (await r.commandInfo(['get', 'nonsense']));
    await same([get[0].arity, get[0].firstKeyIndex, get[1]], [2, 1, null]);
    holds((await r.command()).length > 200, 'COMMAND');
    holds((await r.commandCount()) > 200, 'COMMAND COUNT');
    await same(r.commandGetKeys(['MSET', 'a', '1', 'b', '2']), ['a', 'b']);
    await same((await r.commandGetKeysAndFlags(['GET', 'a']))[0].key, 'a');
    holds((await r.commandList({ FILTERBY: { type: 'ACLCAT', value: 'string' } })).includes('get'), 'COMMAND LIST');
    holds((await r.commandDocs('get')) !== undefined, 'COMMAND DOCS');
  });

  await story('acl', async (r) => {
    await same(r.aclWhoAmI(), 'default');
    await same(r.aclSetUser('worker', ['reset', 'on', '>secret', '~w:*', '&news', '+@string', '+acl|whoami', '+client', '-append']), 'OK');
    holds((await r.aclUsers()).includes('worker'), 'ACL USERS');
    holds((await r.aclList()).some((line) => line.startsWith('user worker on')), 'ACL LIST');
    holds((await r.aclCat('hash')).includes('hset'), 'ACL CAT');
    await same((await r.aclGenPass(256)).length, 64);
    const user = await r.aclGetUser('worker');
    holds([...user.flags].includes('on'), 'ACL GETUSER');
    const w = await client({ username: 'worker', password: 'secret' });
    await same(w.aclWhoAmI(), 'worker');
    await same(w.set('w:1', 'v'), 'OK');
    await fails(w.set('x', 'v'), 'NOPERM');
    await fails(w.append('w:1', 'v'), 'NOPERM');
    await same((await r.aclLog(10))[0].username, 'worker');
    await same(r.aclLogReset(), 'OK');
    await same(r.aclDryRun('worker', ['GET', 'w:1']), 'OK');
    const other = await client();
    await same(other.auth({ username: 'worker', password: 'secret' }), 'OK');
    await fails(client({ username: 'worker', password: 'wrong', socket: { reconnectStrategy: false } }), 'WRONGPASS');
    await fails(r.aclSave(), 'not configured to use an ACL file');
    await fails(r.aclLoad(), 'not configured to use an ACL file');
    await same(r.aclDelUser('worker'), 1);
  });

  await story('connections', async (r) => {
    const copy = r.duplicate();
    copy.on('error', () => {});
    await copy.connect();
    await same(copy.ping(), 'PONG');
    await copy.close();
    await fails(copy.ping(), '');
    const quitting = await client();
    await same(quitting.quit(), 'OK');
    const mapped = r.withCommandOptions({ typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } });
    await r.set('k', 'v');
    await same(mapped.get('k'), Buffer.from('v'));
    await fails(r.withAbortSignal(AbortSignal.abort()).get('k'), '');
    await fails(client({ url: 'redis://127.0.0.1:1', socket: { reconnectStrategy: false } }), 'ECONNREFUSED');
    // Longer than a loaded machine needs to connect.
    const hasty = await client({ socket: { socketTimeout: 2000, reconnectStrategy: false } });
    await fails(hasty.blPop('none', 5), '');
  });

  if (socketPath) {
    await story('unix_socket', async () => {
      const one = await client({ url: undefined, socket: { path: socketPath, reconnectStrategy: false } });
      await same(one.set('k', 'v'), 'OK');
      await same(one.get('k'), 'v');
    });
  }

  if (tlsPort) {
    await story('tls', async () => {
      const { ca, cert, key } = certificates();
      const to = { host: 'localhost', port: tlsPort, tls: true, reconnectStrategy: false };
      const one = await client({ url: undefined, socket: { ...to, ca, cert, key } });
      const big = 'x'.repeat(100_000);
      await same(one.set('k', big), 'OK');
      await same(one.get('k'), big);
      await fails(client({ url: undefined, socket: { ...to, cert, key } }), '');
      await fails(client({ url: undefined, socket: { ...to, ca } }), '');
    });
  }
}

// Methods of modules, of clusters, of later Redis versions or of the event emitter, and methods that a test's server must not get.
const EXCEPT = new RegExp('^(_|constructor$|[A-Z]|ar[A-Z]|bless|cluster|hotkeys|hImport|v[A-Z]|asap|asking|bgRewriteAof|bgSave|save$|'
  + 'blMoveM|lMoveM|delEx|digest|flushAll|hGetDel|hGetEx|hSetEx|incrEx|increx|mSetEx|sDiffCard|sUnionCard|xAckDel|xCfgSet|xDelEx|xNack|'
  + 'add|emit|eventNames|extend|get.*Listeners|get.*Max|listener|off$|once$|on$|prepend|raw|remove|set.*Max|setDirtyWatch|resetIfDirty|'
  + 'createPool|legacy|ref$|unref|reAuthenticate|readonly|replicaOf|restoreAsking|scriptDebug|moduleLoad|moduleUnload|disconnect$|'
  + 'connect$|destroy|close|duplicate|executeIsolated'
  + (flintkv ? ')' : '|hExpire|hPersist|hpExpire|hTTL|hpTTL|hScanNoValues|hScanValues|clientNoTouch|z.*RankWithScore)'));

for (RESP of [3, 2]) {
  await values();
  await flow();
  await server();
}
if (complete()) {
  await family('surface', async () => same(unusedMethods(createClient(), used, EXCEPT), []));
}
finish();
