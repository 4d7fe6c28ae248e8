package main

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Strings, keys, hashes, lists, sets, bitmaps, HyperLogLogs.
var values = []family{
	{"strings", stringCommands},
	{"numbers", numbers},
	{"keys", keys},
	{"expiry", expiry},
	{"hashes", hashes},
	{"hash_field_expiry", hashFieldExpiry},
	{"lists", lists},
	{"blocking_lists", blockingLists},
	{"sets", sets},
	{"bitmaps", bitmaps},
	{"hyperloglogs", hyperLogLogs},
	{"scans", scans},
	{"sorting", sorting},
	{"dump_restore", dumpRestore},
}

func stringCommands(s *session) {
	r := s.r
	is(r.Set(ctx, "a", "1", 0), "OK")
	is(r.Get(ctx, "a"), "1")
	none(r.Get(ctx, "none"))
	is(r.SetNX(ctx, "a", "2", 0), false)
	is(r.SetXX(ctx, "a", "2", time.Minute), true)
	within(value(r.TTL(ctx, "a")), 59*time.Second, time.Minute)
	is(r.Set(ctx, "a", "3", redis.KeepTTL), "OK")
	within(value(r.PTTL(ctx, "a")), 59*time.Second, time.Minute)
	is(r.SetEx(ctx, "a", "4", time.Minute), "OK")
	is(r.SetArgs(ctx, "a", "5", redis.SetArgs{Get: true, KeepTTL: true}), "4")
	none(r.SetArgs(ctx, "a", "6", redis.SetArgs{Mode: "NX"}))
	is(r.SetArgs(ctx, "a", "7", redis.SetArgs{Mode: "XX", ExpireAt: time.Now().Add(time.Minute)}), "OK")
	is(r.GetSet(ctx, "a", "8"), "7")
	is(r.GetEx(ctx, "a", time.Minute), "8")
	is(r.GetEx(ctx, "a", 0), "8")
	is(r.GetDel(ctx, "a"), "8")
	is(r.MSet(ctx, "m1", 1, "m2", 2), "OK")
	is(r.MSetNX(ctx, map[string]any{"m2": 3, "m3": 3}), false)
	is(r.MGet(ctx, "m1", "none", "m2"), []any{"1", nil, "2"})
	is(r.Append(ctx, "m1", "23"), 3)
	is(r.StrLen(ctx, "m1"), 3)
	is(r.GetRange(ctx, "m1", 1, -1), "23")
	is(r.SetRange(ctx, "m1", 5, "z"), 6)
	is(r.Get(ctx, "m1"), "123\x00\x00z")
	big := strings.Repeat("x", 300_000)
	is(r.Set(ctx, "big", big, 0), "OK")
	is(r.Get(ctx, "big"), big)
	buffer := make([]byte, 400_000)
	is(r.SetFromBuffer(ctx, "big", buffer[:200_000]), "OK")
	check(r.GetToBuffer(ctx, "big", buffer).Err())
	type record struct {
		Name string `redis:"name"`
		Age  int    `redis:"age"`
	}
	is(r.MSet(ctx, record{"flint", 7}), "OK")
	var back record
	check(r.MGet(ctx, "name", "age").Scan(&back))
	same(back, record{"flint", 7})
	r.MSet(ctx, "s1", "ohmytext", "s2", "mynewtext")
	same(value(r.LCS(ctx, &redis.LCSQuery{Key1: "s1", Key2: "s2"})).MatchString, "mytext")
	same(value(r.LCS(ctx, &redis.LCSQuery{Key1: "s1", Key2: "s2", Len: true})).Len, 6)
	matches := value(r.LCS(ctx, &redis.LCSQuery{Key1: "s1", Key2: "s2", Idx: true, MinMatchLen: 3, WithMatchLen: true}))
	same(matches.Matches, "[{{4 7} {5 8} 4}]")
}

func numbers(s *session) {
	r := s.r
	is(r.Incr(ctx, "n"), 1)
	is(r.IncrBy(ctx, "n", 9), 10)
	is(r.Decr(ctx, "n"), 9)
	is(r.DecrBy(ctx, "n", 19), -10)
	is(r.IncrByFloat(ctx, "n", 0.5), -9.5)
	no(r.Incr(ctx, "n").Err(), "ERR value is not an integer or out of range")
	r.Set(ctx, "n", "9223372036854775807", 0)
	no(r.Incr(ctx, "n").Err(), "ERR increment or decrement would overflow")
	r.Del(ctx, "n")
	r.LPush(ctx, "n", 1)
	no(r.Incr(ctx, "n").Err(), "WRONGTYPE Operation against a key holding the wrong kind of value")
}

func keys(s *session) {
	r := s.r
	r.MSet(ctx, "k1", 1, "k2", 2, "other", 3)
	is(r.Exists(ctx, "k1", "k2", "none", "k1"), 3)
	is(r.Touch(ctx, "k1", "none"), 1)
	sorted(r.Keys(ctx, "k*"), "k1", "k2")
	is(r.DBSize(ctx), 3)
	same(strings.Contains("k1 k2 other", value(r.RandomKey(ctx))), true)
	is(r.Type(ctx, "k1"), "string")
	is(r.Rename(ctx, "k1", "k3"), "OK")
	is(r.RenameNX(ctx, "k3", "k2"), false)
	no(r.Rename(ctx, "none", "x").Err(), "ERR no such key")
	is(r.Copy(ctx, "k3", "k4", 0, false), 1)
	is(r.Copy(ctx, "k2", "k4", 0, true), 1)
	is(r.Copy(ctx, "k2", "k4", 1, true), 1)
	other := s.client(func(o *redis.Options) { o.DB = 1 })
	defer other.Close()
	is(other.Get(ctx, "k4"), 2)
	is(other.FlushDBAsync(ctx), "OK")
	is(r.Move(ctx, "k4", 1), true)
	is(other.DBSize(ctx), 1)
	is(other.FlushDB(ctx), "OK")
	is(r.Del(ctx, "k2", "none"), 1)
	is(r.Unlink(ctx, "k3"), 1)
	is(r.ObjectEncoding(ctx, "other"), "int")
	is(r.ObjectRefCount(ctx, "other"), value(r.ObjectRefCount(ctx, "other")))
	within(value(r.ObjectIdleTime(ctx, "other")), 0, 2*time.Second)
	no(r.ObjectFreq(ctx, "other").Err(), "ERR An LFU maxmemory policy is not selected")
	within(value(r.MemoryUsage(ctx, "other", 5)), 10, 400)
	none(r.MemoryUsage(ctx, "none"))
	is(r.Migrate(ctx, "127.0.0.1", "1", "none", 0, time.Second), "NOKEY")
}

func expiry(s *session) {
	r := s.r
	now := time.Now().Truncate(time.Second)
	r.Set(ctx, "k", "v", 0)
	is(r.TTL(ctx, "k"), time.Duration(-1))
	is(r.TTL(ctx, "none"), time.Duration(-2))
	is(r.Expire(ctx, "k", 100*time.Second), true)
	is(r.ExpireNX(ctx, "k", time.Second), false)
	is(r.ExpireXX(ctx, "k", 110*time.Second), true)
	is(r.ExpireGT(ctx, "k", 50*time.Second), false)
	is(r.ExpireLT(ctx, "k", 50*time.Second), true)
	is(r.PExpire(ctx, "k", 90_500*time.Millisecond), true)
	is(r.ExpireAt(ctx, "k", now.Add(time.Hour)), true)
	is(r.ExpireTime(ctx, "k"), time.Duration(now.Unix()+3600)*time.Second)
	is(r.PExpireAt(ctx, "k", now.Add(2*time.Hour)), true)
	is(r.PExpireTime(ctx, "k"), time.Duration(now.Unix()+7200)*time.Second)
	is(r.Persist(ctx, "k"), true)
	is(r.Persist(ctx, "k"), false)
	r.Set(ctx, "short", "v", 20*time.Millisecond)
	time.Sleep(40 * time.Millisecond)
	none(r.Get(ctx, "short"))
}

func hashes(s *session) {
	r := s.r
	is(r.HSet(ctx, "h", "a", 1, "b", 2), 2)
	is(r.HSet(ctx, "h", map[string]any{"a": 2, "c": 4}), 1)
	is(r.HMSet(ctx, "h", "d", 5), true)
	is(r.HSetNX(ctx, "h", "d", 6), false)
	is(r.HGet(ctx, "h", "a"), 2)
	none(r.HGet(ctx, "h", "none"))
	is(r.HMGet(ctx, "h", "a", "none"), []any{"2", nil})
	is(r.HGetAll(ctx, "h"), map[string]string{"a": "2", "b": "2", "c": "4", "d": "5"})
	var back struct {
		A int `redis:"a"`
		D int `redis:"d"`
	}
	check(r.HGetAll(ctx, "h").Scan(&back))
	same(back, "{2 5}")
	is(r.HLen(ctx, "h"), 4)
	sorted(r.HKeys(ctx, "h"), "a", "b", "c", "d")
	sorted(r.HVals(ctx, "h"), "2", "2", "4", "5")
	is(r.HExists(ctx, "h", "a"), true)
	is(r.HStrLen(ctx, "h", "a"), 1)
	is(r.HIncrBy(ctx, "h", "a", 40), 42)
	is(r.HIncrByFloat(ctx, "h", "a", 0.25), 42.25)
	no(r.HIncrBy(ctx, "h", "a", 1).Err(), "ERR hash value is not an integer")
	is(r.HDel(ctx, "h", "a", "none"), 1)
	same(len(value(r.HRandField(ctx, "h", -20))), 20)
	same(len(value(r.HRandFieldWithValues(ctx, "h", 2))), 2)
	page, cursor, err := r.HScan(ctx, "h", 0, "b", 100).Result()
	check(err)
	same(page, []string{"b", "2"})
	same(cursor, 0)
	many := map[string]any{}
	for i := range 1000 {
		many[strings.Repeat("f", 1+i%7)+time.Duration(i).String()] = i
	}
	is(r.HSet(ctx, "big", many), 1000)
	count := 0
	for iterator := r.HScan(ctx, "big", 0, "", 50).Iterator(); iterator.Next(ctx); count++ {
	}
	same(count, 2000)
}

func hashFieldExpiry(s *session) {
	if !flintkv {
		return
	}
	r, now := s.r, time.Now().Truncate(time.Second)
	r.HSet(ctx, "h", "a", 1, "b", 2, "c", 3)
	is(r.HExpire(ctx, "h", 100*time.Second, "a", "none"), []int64{1, -2})
	is(r.HTTL(ctx, "h", "a", "b", "none"), []int64{100, -1, -2})
	is(r.HExpireWithArgs(ctx, "h", 10*time.Second, redis.HExpireArgs{NX: true}, "a", "b"), []int64{0, 1})
	is(r.HPExpire(ctx, "h", time.Hour, "c"), []int64{1})
	is(r.HPExpireWithArgs(ctx, "h", time.Minute, redis.HExpireArgs{GT: true}, "c"), []int64{0})
	within(value(r.HPTTL(ctx, "h", "c"))[0], 3_500_000, 3_600_000)
	is(r.HExpireAt(ctx, "h", now.Add(time.Hour), "a"), []int64{1})
	is(r.HExpireAtWithArgs(ctx, "h", now.Add(time.Minute), redis.HExpireArgs{LT: true}, "a"), []int64{1})
	is(r.HPExpireAt(ctx, "h", now.Add(time.Hour), "a"), []int64{1})
	is(r.HPExpireAtWithArgs(ctx, "h", now.Add(time.Hour), redis.HExpireArgs{XX: true}, "a"), []int64{1})
	is(r.HExpireTime(ctx, "h", "a"), []int64{now.Unix() + 3600})
	is(r.HPExpireTime(ctx, "h", "a"), []int64{(now.Unix() + 3600) * 1000})
	is(r.HPersist(ctx, "h", "a", "none"), []int64{1, -2})
	is(r.HPExpire(ctx, "h", 10*time.Millisecond, "a"), []int64{1})
	time.Sleep(30 * time.Millisecond)
	is(r.HLen(ctx, "h"), 2)
	page, _, err := r.HScanNoValues(ctx, "h", 0, "b", 10).Result()
	check(err)
	same(page, []string{"b"})
}

func lists(s *session) {
	r := s.r
	is(r.RPush(ctx, "l", "a", "b", "c"), 3)
	is(r.LPush(ctx, "l", "z"), 4)
	is(r.LPushX(ctx, "none", "a"), 0)
	is(r.RPushX(ctx, "l", "d"), 5)
	is(r.LRange(ctx, "l", 0, -1), "[z a b c d]")
	is(r.LLen(ctx, "l"), 5)
	is(r.LIndex(ctx, "l", -1), "d")
	none(r.LIndex(ctx, "l", 99))
	is(r.LSet(ctx, "l", 0, "Z"), "OK")
	no(r.LSet(ctx, "l", 99, "x").Err(), "ERR index out of range")
	is(r.LInsert(ctx, "l", "BEFORE", "a", "m"), 6)
	is(r.LInsertBefore(ctx, "l", "none", "m"), -1)
	is(r.LInsertAfter(ctx, "l", "d", "e"), 7)
	is(r.LPop(ctx, "l"), "Z")
	is(r.RPop(ctx, "l"), "e")
	is(r.LPopCount(ctx, "l", 2), "[m a]")
	is(r.RPopCount(ctx, "l", 2), "[d c]")
	none(r.LPop(ctx, "none"))
	none(r.LPopCount(ctx, "none", 2))
	r.RPush(ctx, "l", "a", "b")
	is(r.LPos(ctx, "l", "b", redis.LPosArgs{Rank: 2}), 2)
	none(r.LPos(ctx, "l", "none", redis.LPosArgs{}))
	is(r.LPosCount(ctx, "l", "b", 0, redis.LPosArgs{}), "[0 2]")
	is(r.LRem(ctx, "l", -1, "b"), 1)
	is(r.LTrim(ctx, "l", 1, -1), "OK")
	is(r.LMove(ctx, "l", "l2", "LEFT", "RIGHT"), "a")
	none(r.RPopLPush(ctx, "none", "l2"))
	key, popped, err := r.LMPop(ctx, "LEFT", 5, "none", "l2").Result()
	check(err)
	same(key, "l2")
	same(popped, "[a]")
	none(r.LMPop(ctx, "RIGHT", 1, "none"))
	pipe := r.Pipeline()
	for i := range 3000 {
		pipe.RPush(ctx, "long", i)
	}
	_, err = pipe.Exec(ctx)
	check(err)
	is(r.LIndex(ctx, "long", 1500), 1500)
	is(r.ObjectEncoding(ctx, "long"), "quicklist")
}

func blockingLists(s *session) {
	r := s.r
	r.RPush(ctx, "l", "a")
	is(r.BLPop(ctx, time.Second, "none", "l"), "[l a]")
	later(func() { s.side.RPush(ctx, "l", "b") })
	is(r.BRPop(ctx, 5*time.Second, "none", "l"), "[l b]")
	later(func() { s.side.RPush(ctx, "src", "c") })
	is(r.BRPopLPush(ctx, "src", "dst", 5*time.Second), "c")
	later(func() { s.side.RPush(ctx, "src", "d") })
	is(r.BLMove(ctx, "src", "dst", "LEFT", "RIGHT", 5*time.Second), "d")
	later(func() { s.side.RPush(ctx, "q", 1, 2, 3) })
	key, popped, err := r.BLMPop(ctx, 5*time.Second, "LEFT", 2, "none", "q").Result()
	check(err)
	same(key, "q")
	same(popped, "[1 2]")
	started := time.Now()
	none(r.BLPop(ctx, time.Second, "none"))
	within(time.Since(started), 900*time.Millisecond, patience)
	// A cancelled wait takes nothing.
	brief := s.client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	defer brief.Close()
	deadline, cancel := contextWithTimeout(100 * time.Millisecond)
	defer cancel()
	no(brief.BLPop(deadline, 5*time.Second, "wanted").Err(), "")
	time.Sleep(50 * time.Millisecond)
	r.RPush(ctx, "wanted", "kept")
	is(r.LRange(ctx, "wanted", 0, -1), "[kept]")
}

func sets(s *session) {
	r := s.r
	is(r.SAdd(ctx, "s", "a", "b", "c", "a"), 3)
	is(r.SAdd(ctx, "t", "b", "c", "d"), 3)
	sorted(r.SMembers(ctx, "s"), "a", "b", "c")
	is(r.SMembersMap(ctx, "none"), map[string]struct{}{})
	is(r.SCard(ctx, "s"), 3)
	is(r.SIsMember(ctx, "s", "a"), true)
	is(r.SMIsMember(ctx, "s", "a", "z"), "[true false]")
	sorted(r.SInter(ctx, "s", "t"), "b", "c")
	sorted(r.SUnion(ctx, "s", "t"), "a", "b", "c", "d")
	sorted(r.SDiff(ctx, "s", "t"), "a")
	is(r.SInterStore(ctx, "i", "s", "t"), 2)
	is(r.SUnionStore(ctx, "u", "s", "t"), 4)
	is(r.SDiffStore(ctx, "d", "s", "t"), 1)
	is(r.SInterCard(ctx, 1, "s", "t"), 1)
	is(r.SMove(ctx, "s", "t", "a"), true)
	is(r.SRem(ctx, "t", "a", "none"), 1)
	same(strings.Contains("bcd", value(r.SRandMember(ctx, "t"))), true)
	same(len(value(r.SRandMemberN(ctx, "t", -9))), 9)
	is(r.SPop(ctx, "d"), "a")
	none(r.SPop(ctx, "d"))
	sorted(r.SPopN(ctx, "t", 5), "b", "c", "d")
	ints := make([]any, 600)
	for i := range ints {
		ints[i] = i
	}
	is(r.SAdd(ctx, "ints", ints[:5]...), 5)
	is(r.ObjectEncoding(ctx, "ints"), "intset")
	is(r.SAdd(ctx, "ints", ints...), 595)
	found := map[string]bool{}
	for iterator := r.SScan(ctx, "ints", 0, "", 30).Iterator(); iterator.Next(ctx); {
		found[iterator.Val()] = true
	}
	same(len(found), 600)
}

func bitmaps(s *session) {
	r := s.r
	is(r.SetBit(ctx, "b", 7, 1), 0)
	is(r.GetBit(ctx, "b", 7), 1)
	r.Set(ctx, "b", "\x00\xff\xf0", 0)
	r.Set(ctx, "c", "\x0f\x0f", 0)
	is(r.BitCount(ctx, "b", nil), 12)
	is(r.BitCount(ctx, "b", &redis.BitCount{Start: 8, End: 11, Unit: "BIT"}), 4)
	is(r.BitPos(ctx, "b", 1), 8)
	is(r.BitPos(ctx, "b", 0, 1, 2), 20)
	is(r.BitPosSpan(ctx, "b", 1, 10, 20, "bit"), 10)
	is(r.BitOpAnd(ctx, "d", "b", "c"), 3)
	is(r.Get(ctx, "d"), "\x00\x0f\x00")
	is(r.BitOpOr(ctx, "d", "b", "c"), 3)
	is(r.BitOpXor(ctx, "d", "b", "c"), 3)
	is(r.BitOpNot(ctx, "d", "c"), 2)
	is(r.Get(ctx, "d"), "\xf0\xf0")
	is(r.BitField(ctx, "f", "SET", "u8", 0, 200, "OVERFLOW", "SAT", "INCRBY", "u8", 0, 100, "GET", "i8", 0), "[0 255 -1]")
	is(r.BitFieldRO(ctx, "f", "u4", 0, "u8", "#0"), "[15 255]")
	no(r.SetBit(ctx, "b", -1, 1).Err(), "ERR bit offset is not an integer or out of range")
	no(r.SetBit(ctx, "b", 1, 2).Err(), "ERR bit is not an integer or out of range")
}

func hyperLogLogs(s *session) {
	r := s.r
	members := make([]any, 1000)
	for i := range members {
		members[i] = i
	}
	is(r.PFAdd(ctx, "p", members...), 1)
	is(r.PFAdd(ctx, "p", 1, 2), 0)
	within(value(r.PFCount(ctx, "p")), 970, 1030)
	is(r.PFMerge(ctx, "m", "p", "none"), "OK")
	within(value(r.PFCount(ctx, "m", "p")), 970, 1030)
}

func scans(s *session) {
	r := s.r
	pipe := r.Pipeline()
	for i := range 500 {
		pipe.Set(ctx, "key"+time.Duration(i).String(), i, 0)
	}
	pipe.SAdd(ctx, "set", 1)
	_, err := pipe.Exec(ctx)
	check(err)
	found := map[string]bool{}
	for iterator := r.Scan(ctx, 0, "", 30).Iterator(); iterator.Next(ctx); {
		found[iterator.Val()] = true
	}
	same(len(found), 501)
	page, cursor, err := r.ScanType(ctx, 0, "*", 10_000, "set").Result()
	check(err)
	same(page, "[set]")
	same(cursor, 0)
}

func sorting(s *session) {
	r := s.r
	r.RPush(ctx, "l", 3, 1, 2, 10)
	is(r.Sort(ctx, "l", &redis.Sort{}), "[1 2 3 10]")
	is(r.Sort(ctx, "l", &redis.Sort{Order: "DESC", Offset: 0, Count: 2}), "[10 3]")
	r.MSet(ctx, "w1", 9, "w2", 5, "w3", 7, "w10", 1)
	is(r.Sort(ctx, "l", &redis.Sort{By: "w*", Get: []string{"#", "w*"}}), "[10 1 2 5 3 7 1 9]")
	is(r.SortInterfaces(ctx, "l", &redis.Sort{Get: []string{"x*"}}), "[<nil> <nil> <nil> <nil>]")
	is(r.SortRO(ctx, "l", &redis.Sort{Alpha: true}), "[1 10 2 3]")
	is(r.SortStore(ctx, "l", "stored", &redis.Sort{}), 4)
	r.RPush(ctx, "words", "x")
	no(r.Sort(ctx, "words", &redis.Sort{}).Err(), "ERR One or more scores can't be converted into double")
}

func dumpRestore(s *session) {
	r := s.r
	r.Set(ctx, "s", "v", 0)
	r.RPush(ctx, "l", 1, 2, 3)
	r.SAdd(ctx, "set", "a")
	r.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"})
	r.HSet(ctx, "h", "f", "v")
	is(r.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: []string{"f", "v"}}), "1-1")
	for _, key := range []string{"s", "l", "set", "z", "h", "x"} {
		payload := value(r.Dump(ctx, key))
		is(r.Restore(ctx, "copy", 0, payload), "OK")
		is(r.Dump(ctx, "copy"), payload)
		no(r.Restore(ctx, "copy", 0, payload).Err(), "BUSYKEY Target key name already exists.")
		is(r.RestoreReplace(ctx, "copy", time.Minute, payload), "OK")
		within(value(r.TTL(ctx, "copy")), 58*time.Second, time.Minute)
		r.Del(ctx, "copy")
	}
	none(r.Dump(ctx, "none"))
	no(r.Restore(ctx, "bad", 0, "nonsense").Err(), "ERR DUMP payload version or checksum are wrong")
}
