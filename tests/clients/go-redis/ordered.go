package main

import (
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sorted sets, geo, streams.
var ordered = []family{
	{"sorted_sets", sortedSets},
	{"sorted_set_ranges", sortedSetRanges},
	{"sorted_set_algebra", sortedSetAlgebra},
	{"blocking_sorted_sets", blockingSortedSets},
	{"geo", geo},
	{"streams", streams},
	{"stream_groups", streamGroups},
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

func sortedSets(s *session) {
	r := s.r
	is(r.ZAdd(ctx, "z", z(1, "a"), z(2, "b"), z(3, "c")), 3)
	is(r.ZAddNX(ctx, "z", z(9, "a")), 0)
	is(r.ZAddXX(ctx, "z", z(9, "none")), 0)
	is(r.ZAddGT(ctx, "z", z(1.5, "a")), 0)
	is(r.ZAddLT(ctx, "z", z(1, "a")), 0)
	is(r.ZAddArgs(ctx, "z", redis.ZAddArgs{Ch: true, Members: []redis.Z{z(1, "a"), z(4, "d"), z(2.5, "b")}}), 2)
	is(r.ZAddArgsIncr(ctx, "z", redis.ZAddArgs{Members: []redis.Z{z(0.5, "b")}}), 3)
	none(r.ZAddArgsIncr(ctx, "z", redis.ZAddArgs{NX: true, Members: []redis.Z{z(0.5, "b")}}))
	is(r.ZIncrBy(ctx, "z", -1, "b"), 2)
	is(r.ZCard(ctx, "z"), 4)
	is(r.ZCount(ctx, "z", "(1", "3"), 2)
	is(r.ZScore(ctx, "z", "a"), 1)
	none(r.ZScore(ctx, "z", "none"))
	is(r.ZMScore(ctx, "z", "a", "d"), "[1 4]")
	is(r.ZRank(ctx, "z", "c"), 2)
	is(r.ZRevRank(ctx, "z", "c"), 1)
	none(r.ZRank(ctx, "z", "none"))
	if flintkv {
		is(r.ZRankWithScore(ctx, "z", "c"), "{2 3}")
		is(r.ZRevRankWithScore(ctx, "z", "c"), "{1 3}")
	}
	is(r.ZRem(ctx, "z", "d", "none"), 1)
	same(len(value(r.ZRandMember(ctx, "z", -9))), 9)
	same(len(value(r.ZRandMemberWithScores(ctx, "z", 2))), 2)
	page, cursor, err := r.ZScan(ctx, "z", 0, "a", 10).Result()
	check(err)
	same(page, "[a 1]")
	same(cursor, 0)
	is(r.ZPopMin(ctx, "z"), "[{1 a}]")
	is(r.ZPopMax(ctx, "z", 5), "[{3 c} {2 b}]")
	is(r.ZPopMin(ctx, "z"), "[]")
	r.ZAdd(ctx, "inf", z(math.Inf(1), "hi"), z(math.Inf(-1), "lo"))
	is(r.ZRangeWithScores(ctx, "inf", 0, -1), "[{-Inf lo} {+Inf hi}]")
	no(r.ZIncrBy(ctx, "inf", math.Inf(-1), "hi").Err(), "ERR resulting score is not a number (NaN)")
}

func sortedSetRanges(s *session) {
	r := s.r
	for i, member := range []string{"a", "b", "c", "d", "e", "f"} {
		r.ZAdd(ctx, "z", z(float64(i), member))
		r.ZAdd(ctx, "lex", z(0, member))
	}
	is(r.ZRange(ctx, "z", 0, 1), "[a b]")
	is(r.ZRevRange(ctx, "z", 0, 1), "[f e]")
	is(r.ZRevRangeWithScores(ctx, "z", 0, 0), "[{5 f}]")
	is(r.ZRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "(1", Max: "+inf", Offset: 1, Count: 2}), "[d e]")
	is(r.ZRangeByScoreWithScores(ctx, "z", &redis.ZRangeBy{Min: "1", Max: "1"}), "[{1 b}]")
	is(r.ZRevRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "1", Max: "2"}), "[c b]")
	is(r.ZRevRangeByScoreWithScores(ctx, "z", &redis.ZRangeBy{Min: "2", Max: "2"}), "[{2 c}]")
	is(r.ZRangeByLex(ctx, "lex", &redis.ZRangeBy{Min: "[b", Max: "(d"}), "[b c]")
	is(r.ZRevRangeByLex(ctx, "lex", &redis.ZRangeBy{Min: "-", Max: "+", Count: 1}), "[f]")
	is(r.ZLexCount(ctx, "lex", "-", "(c"), 2)
	is(r.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "z", Start: "(3", Stop: "1", ByScore: true, Rev: true}), "[c b]")
	is(r.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: "z", Start: 0, Stop: 0}), "[{0 a}]")
	is(r.ZRangeStore(ctx, "dst", redis.ZRangeArgs{Key: "lex", Start: "[a", Stop: "[c", ByLex: true, Offset: 1, Count: 5}), 2)
	is(r.ZRemRangeByLex(ctx, "lex", "[a", "[b"), 2)
	is(r.ZRemRangeByRank(ctx, "z", 0, 1), 2)
	is(r.ZRemRangeByScore(ctx, "z", "(4", "inf"), 1)
	no(r.ZCount(ctx, "z", "x", "1").Err(), "ERR min or max is not a float")
	no(r.ZLexCount(ctx, "z", "x", "1").Err(), "ERR min or max not valid string range item")
}

func sortedSetAlgebra(s *session) {
	r := s.r
	r.ZAdd(ctx, "a", z(1, "x"), z(2, "y"))
	r.ZAdd(ctx, "b", z(10, "y"), z(20, "z"))
	both := []string{"a", "b"}
	is(r.ZUnion(ctx, redis.ZStore{Keys: both}), "[x y z]")
	is(r.ZUnionWithScores(ctx, redis.ZStore{Keys: both, Weights: []float64{2, 0.5}, Aggregate: "MAX"}), "[{2 x} {5 y} {10 z}]")
	is(r.ZInter(ctx, &redis.ZStore{Keys: both}), "[y]")
	is(r.ZInterWithScores(ctx, &redis.ZStore{Keys: both, Aggregate: "MIN"}), "[{2 y}]")
	is(r.ZDiff(ctx, "a", "b"), "[x]")
	is(r.ZDiffWithScores(ctx, "a", "b"), "[{1 x}]")
	is(r.ZUnionStore(ctx, "u", &redis.ZStore{Keys: both}), 3)
	is(r.ZInterStore(ctx, "i", &redis.ZStore{Keys: both}), 1)
	is(r.ZDiffStore(ctx, "d", "a", "b"), 1)
	is(r.ZInterCard(ctx, 5, "a", "b"), 1)
	key, popped, err := r.ZMPop(ctx, "MIN", 2, "none", "a").Result()
	check(err)
	same(key, "a")
	same(popped, "[{1 x} {2 y}]")
	none(r.ZMPop(ctx, "MAX", 1, "none"))
}

func blockingSortedSets(s *session) {
	r := s.r
	r.ZAdd(ctx, "z", z(1, "a"), z(2, "b"))
	same(value(r.BZPopMin(ctx, time.Second, "none", "z")).Member, "a")
	same(value(r.BZPopMax(ctx, time.Second, "z")).Score, 2)
	later(func() { s.side.ZAdd(ctx, "z", z(3, "c")) })
	same(value(r.BZPopMin(ctx, 5*time.Second, "z")).Key, "z")
	later(func() { s.side.ZAdd(ctx, "z", z(3, "c"), z(4, "d")) })
	key, popped, err := r.BZMPop(ctx, 5*time.Second, "MAX", 2, "none", "z").Result()
	check(err)
	same(key, "z")
	same(popped, "[{4 d} {3 c}]")
}

func geo(s *session) {
	r := s.r
	palermo := &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}
	catania := &redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}
	is(r.GeoAdd(ctx, "g", palermo, catania), 2)
	is(r.GeoDist(ctx, "g", "Palermo", "Catania", "km"), 166.2742)
	none(r.GeoDist(ctx, "g", "Palermo", "none", "km"))
	is(r.GeoHash(ctx, "g", "Palermo", "Catania"), "[sqc8b49rny0 sqdtr74hyu0]")
	positions := value(r.GeoPos(ctx, "g", "Palermo", "none"))
	within(positions[0].Longitude, 13.3613, 13.3615)
	same(positions[1] == nil, true)
	near := &redis.GeoRadiusQuery{Radius: 200, Unit: "km", WithDist: true, WithCoord: true, WithGeoHash: true, Sort: "ASC"}
	found := value(r.GeoRadius(ctx, "g", 15, 37, near))
	same(found[0].Name, "Catania")
	same(found[1].Dist, 190.4424)
	same(found[1].GeoHash, 3479099956230698)
	same(len(value(r.GeoRadiusByMember(ctx, "g", "Palermo", &redis.GeoRadiusQuery{Radius: 10, Unit: "km"}))), 1)
	is(r.GeoRadiusStore(ctx, "g", 15, 37, &redis.GeoRadiusQuery{Radius: 200, Unit: "km", Store: "dst"}), 2)
	is(r.GeoRadiusByMemberStore(ctx, "g", "Palermo", &redis.GeoRadiusQuery{Radius: 9, Unit: "km", StoreDist: "dst"}), 1)
	circle := redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km", Sort: "ASC"}
	is(r.GeoSearch(ctx, "g", &circle), "[Catania Palermo]")
	box := redis.GeoSearchQuery{Member: "Palermo", BoxWidth: 400, BoxHeight: 400, BoxUnit: "km", Sort: "DESC", Count: 1}
	is(r.GeoSearch(ctx, "g", &box), "[Catania]")
	with := value(r.GeoSearchLocation(ctx, "g", &redis.GeoSearchLocationQuery{GeoSearchQuery: circle, WithDist: true, WithCoord: true, WithHash: true}))
	same(with[0].Dist, 56.4413)
	is(r.GeoSearchStore(ctx, "g", "dst", &redis.GeoSearchStoreQuery{GeoSearchQuery: circle, StoreDist: true}), 2)
	no(r.GeoAdd(ctx, "g", &redis.GeoLocation{Name: "x", Longitude: 200, Latitude: 100}).Err(), "ERR invalid longitude,latitude pair")
}

func add(r *redis.Client, stream, id string, values ...string) string {
	return value(r.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: id, Values: values}))
}

func streams(s *session) {
	r := s.r
	same(add(r, "x", "1-1", "a", "1"), "1-1")
	same(add(r, "x", "1-2", "b", "2"), "1-2")
	same(add(r, "x", "2-*", "c", "3"), "2-0")
	no(r.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: []string{"a", "1"}}).Err(), "ERR The ID specified in XADD is equal or smaller")
	none(r.XAdd(ctx, &redis.XAddArgs{Stream: "none", NoMkStream: true, Values: []string{"a", "1"}}))
	is(r.XLen(ctx, "x"), 3)
	same(value(r.XRange(ctx, "x", "-", "+"))[1].Values, "map[b:2]")
	same(value(r.XRangeN(ctx, "x", "(1-1", "+", 1))[0].ID, "1-2")
	same(value(r.XRevRange(ctx, "x", "+", "-"))[0].ID, "2-0")
	same(len(value(r.XRevRangeN(ctx, "x", "+", "-", 2))), 2)
	is(r.XDel(ctx, "x", "1-2", "9-9"), 1)
	read := value(r.XReadStreams(ctx, "x", "none", "0", "0"))
	same(len(read), 1)
	same(len(read[0].Messages), 2)
	none(r.XRead(ctx, &redis.XReadArgs{Streams: []string{"x", "$"}, Block: 20 * time.Millisecond}))
	later(func() { add(s.side, "x", "3-1", "d", "4") })
	read = value(r.XRead(ctx, &redis.XReadArgs{Streams: []string{"x", "$"}, Block: 5 * time.Second, Count: 1}))
	same(read[0].Messages[0].ID, "3-1")
	is(r.XTrimMaxLen(ctx, "x", 2), 1)
	is(r.XTrimMaxLenApprox(ctx, "x", 2, 10), 0)
	is(r.XTrimMinID(ctx, "x", "3"), 1)
	is(r.XTrimMinIDApprox(ctx, "x", "3", 0), 0)
	info := value(r.XInfoStream(ctx, "x"))
	same([]any{info.Length, info.LastGeneratedID, info.EntriesAdded, info.MaxDeletedEntryID}, "[1 3-1 4 1-2]")
	same(info.FirstEntry.ID, "3-1")
	same(value(r.XInfoStreamFull(ctx, "x", 10)).Length, 1)
}

func streamGroups(s *session) {
	r := s.r
	no(r.XGroupCreate(ctx, "x", "g", "0").Err(), "ERR The XGROUP subcommand requires the key to exist")
	is(r.XGroupCreateMkStream(ctx, "x", "g", "$"), "OK")
	no(r.XGroupCreate(ctx, "x", "g", "0").Err(), "BUSYGROUP Consumer Group name already exists")
	for _, id := range []string{"1-0", "2-0", "3-0", "4-0"} {
		add(r, "x", id, "f", "v")
	}
	is(r.XGroupCreateConsumer(ctx, "x", "g", "idle"), 1)
	read := func(consumer, id string, count int64, noAck bool) []redis.XMessage {
		return value(r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{"x", id}, Count: count, NoAck: noAck}))[0].Messages
	}
	same(len(read("c1", ">", 2, false)), 2)
	same(len(read("c2", ">", 1, true)), 1)
	same(len(read("c1", "0", 10, false)), 2)
	same(len(read("c2", ">", 9, false)), 1)
	is(r.XAck(ctx, "x", "g", "1-0", "9-9"), 1)
	pending := value(r.XPending(ctx, "x", "g"))
	same([]any{pending.Count, pending.Lower, pending.Higher, pending.Consumers}, "[2 2-0 4-0 map[c1:1 c2:1]]")
	rows := value(r.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "x", Group: "g", Start: "-", End: "+", Count: 10, Consumer: "c1"}))
	same([]any{rows[0].ID, rows[0].RetryCount}, "[2-0 2]")
	claim := &redis.XClaimArgs{Stream: "x", Group: "g", Consumer: "c2", Messages: []string{"2-0"}}
	same(value(r.XClaim(ctx, claim))[0].ID, "2-0")
	is(r.XClaimJustID(ctx, claim), "[2-0]")
	auto := &redis.XAutoClaimArgs{Stream: "x", Group: "g", Consumer: "c3", Start: "0", Count: 1}
	messages, start, err := r.XAutoClaim(ctx, auto).Result()
	check(err)
	same([]any{len(messages), start}, "[1 4-0]")
	ids, start, err := r.XAutoClaimJustID(ctx, auto).Result()
	check(err)
	same([]any{ids, start}, "[[2-0] 4-0]")
	r.XDel(ctx, "x", "4-0")
	auto.Start = "4-0"
	swept := r.XAutoClaimWithDeleted(ctx, auto)
	check(swept.Err())
	groups := value(r.XInfoGroups(ctx, "x"))
	same([]any{groups[0].Name, groups[0].Consumers, groups[0].Pending, groups[0].EntriesRead}, "[g 4 1 4]")
	same(len(value(r.XInfoConsumers(ctx, "x", "g"))), 4)
	full := value(r.XInfoStreamFull(ctx, "x", 10))
	same([]any{full.Groups[0].Name, full.Groups[0].PelCount}, "[g 1]")
	is(r.XGroupDelConsumer(ctx, "x", "g", "c3"), 1)
	is(r.XGroupSetID(ctx, "x", "g", "0"), "OK")
	same(len(read("c1", ">", 9, false)), 3)
	later(func() { add(s.side, "x", "6-0", "f", "v") })
	woken := value(r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c1", Streams: []string{"x", ">"}, Block: 5 * time.Second}))
	same(woken[0].Messages[0].ID, "6-0")
	no(r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "none", Consumer: "c", Streams: []string{"x", ">"}}).Err(), "NOGROUP")
	is(r.XGroupDestroy(ctx, "x", "g"), 1)
}
