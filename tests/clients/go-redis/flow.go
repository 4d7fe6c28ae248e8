package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Features of several commands or connections.
var flow = []family{
	{"pipelines", pipelines},
	{"transactions", transactions},
	{"scripts", scripts},
	{"functions", functions},
	{"pubsub", pubSub},
	{"sharded_pubsub", shardedPubSub},
	{"keyspace_events", keyspaceEvents},
	{"monitor", monitor},
	{"client_side_caching", clientSideCaching},
}

func contextWithTimeout(after time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, after)
}

func pipelines(s *session) {
	r := s.r
	cmds, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "a", 1, 0)
		pipe.Incr(ctx, "a")
		pipe.LPush(ctx, "l", 1, 2)
		pipe.Get(ctx, "none")
		pipe.HSet(ctx, "h", "f", "v")
		pipe.HGetAll(ctx, "h")
		return nil
	})
	same(errors.Is(err, redis.Nil), true)
	same(len(cmds), 6)
	same(cmds[5].(*redis.MapStringStringCmd).Val(), "map[f:v]")
	pipe := r.Pipeline()
	gets := make([]*redis.StringCmd, 5000)
	for i := range gets {
		pipe.Set(ctx, fmt.Sprint("k", i), i, 0)
		gets[i] = pipe.Get(ctx, fmt.Sprint("k", i))
	}
	same(pipe.Len(), 10_000)
	_, err = pipe.Exec(ctx)
	check(err)
	for i, get := range gets {
		is(get, i)
	}
	auto, err := r.AutoPipeline()
	check(err)
	var wait sync.WaitGroup
	for range 100 {
		wait.Add(1)
		go func() { defer wait.Done(); auto.Incr(ctx, "auto") }()
	}
	wait.Wait()
	is(r.Get(ctx, "auto"), 100)
}

func transactions(s *session) {
	r := s.r
	var count *redis.IntCmd
	_, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "a", 1, 0)
		count = pipe.Incr(ctx, "a")
		return nil
	})
	check(err)
	is(count, 2)
	tx := r.TxPipeline()
	tx.Set(ctx, "a", "x", 0)
	wrong := tx.Incr(ctx, "a")
	tx.Set(ctx, "b", "y", 0)
	_, err = tx.Exec(ctx)
	no(err, "ERR value is not an integer")
	no(wrong.Err(), "ERR value is not an integer")
	is(r.Get(ctx, "b"), "y")
	tx = r.TxPipeline()
	tx.Do(ctx, "SET", "b")
	tx.Set(ctx, "b", "z", 0)
	_, err = tx.Exec(ctx)
	no(err, "")
	is(r.Get(ctx, "b"), "y")
	r.Set(ctx, "n", 1, 0)
	tries := 0
	step := func(tx *redis.Tx) error {
		n, err := tx.Get(ctx, "n").Int()
		check(err)
		if tries++; tries == 1 {
			s.side.Set(ctx, "n", 10, 0)
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "n", n+1, 0)
			return nil
		})
		return err
	}
	same(errors.Is(r.Watch(ctx, step, "n", "none"), redis.TxFailedErr), true)
	check(r.Watch(ctx, step, "n"))
	is(r.Get(ctx, "n"), 11)
	check(r.Watch(ctx, func(tx *redis.Tx) error { return tx.Unwatch(ctx).Err() }, "n"))
}

func scripts(s *session) {
	r := s.r
	is(r.Eval(ctx, "return {KEYS[1],ARGV[1],1,{'x'}}", []string{"k"}, "v"), "[k v 1 [x]]")
	is(r.Eval(ctx, "return redis.call('SET',KEYS[1],ARGV[1])", []string{"k"}, "v"), "OK")
	none(r.Eval(ctx, "return false", nil))
	is(r.EvalRO(ctx, "return redis.call('GET',KEYS[1])", []string{"k"}), "v")
	no(r.EvalRO(ctx, "return redis.call('DEL',KEYS[1])", []string{"k"}).Err(), "Write commands are not allowed from read-only scripts")
	no(r.Eval(ctx, "return redis.error_reply('MY error')", nil).Err(), "MY error")
	no(r.Eval(ctx, "return redis.call('LPUSH',KEYS[1],1)", []string{"k"}).Err(), "WRONGTYPE")
	sha := value(r.ScriptLoad(ctx, "return redis.call('INCRBY',KEYS[1],ARGV[1])"))
	is(r.EvalSha(ctx, sha, []string{"n"}, 5), 5)
	no(r.EvalShaRO(ctx, sha, []string{"n"}, 5).Err(), "read-only scripts")
	is(r.ScriptExists(ctx, sha, strings.Repeat("0", 40)), "[true false]")
	script := redis.NewScript("return redis.call('INCRBY',KEYS[1],ARGV[1]) * 2")
	is(script.Run(ctx, r, []string{"n"}, 1), 12)
	is(script.EvalSha(ctx, r, []string{"n"}, 1), 14)
	is(r.ScriptFlush(ctx), "OK")
	no(r.EvalSha(ctx, sha, []string{"n"}, 5).Err(), "NOSCRIPT No matching script. Please use EVAL.")
	is(script.Run(ctx, r, []string{"n"}, 1), 16)
	no(r.ScriptKill(ctx).Err(), "NOTBUSY No scripts in execution right now.")
	if s.protocol == 3 {
		is(r.Eval(ctx, "redis.setresp(3) return {double=1.25}", nil), 1.25)
		is(r.Eval(ctx, "redis.setresp(3) return {map={a=1}}", nil), "map[a:1]")
	}
}

const library = `#!lua name=golib
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)
redis.register_function{function_name='fetch', callback=function(keys) return redis.call('GET', keys[1]) end,
  flags={'no-writes'}}
`

func functions(s *session) {
	r := s.r
	is(r.FunctionFlush(ctx), "OK")
	is(r.FunctionLoad(ctx, library), "golib")
	no(r.FunctionLoad(ctx, library).Err(), "ERR Library 'golib' already exists")
	is(r.FunctionLoadReplace(ctx, library), "golib")
	is(r.FCall(ctx, "put", []string{"k"}, "v"), "OK")
	is(r.FCallRO(ctx, "fetch", []string{"k"}), "v")
	no(r.FCallRO(ctx, "put", []string{"k"}, "v").Err(), "write flag using *_ro command")
	libraries := value(r.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "go*", WithCode: true}))
	same([]any{libraries[0].Name, libraries[0].Engine, len(libraries[0].Functions), libraries[0].Code == library}, "[golib LUA 2 true]")
	stats := value(r.FunctionStats(ctx))
	same([]any{stats.Engines[0].LibrariesCount, stats.Engines[0].FunctionsCount}, "[1 2]")
	payload := value(r.FunctionDump(ctx))
	is(r.FunctionDelete(ctx, "golib"), "OK")
	is(r.FunctionRestore(ctx, payload), "OK")
	is(r.FCall(ctx, "fetch", []string{"k"}), "v")
	no(r.FunctionKill(ctx).Err(), "NOTBUSY")
	is(r.FunctionFlushAsync(ctx), "OK")
}

func receive(p *redis.PubSub) string {
	got, err := p.ReceiveTimeout(ctx, patience)
	check(err)
	return fmt.Sprint(got)
}

func pubSub(s *session) {
	r := s.r
	p := r.Subscribe(ctx, "a")
	defer p.Close()
	same(receive(p), "subscribe: a")
	check(p.PSubscribe(ctx, "p*"))
	same(receive(p), "psubscribe: p*")
	is(s.side.Publish(ctx, "a", "hello"), 1)
	same(receive(p), "Message<a: hello>")
	is(s.side.Publish(ctx, "p1", "there"), 1)
	same(receive(p), "Message<p1: there>")
	check(p.Ping(ctx, "health"))
	same(receive(p), "Pong<health>")
	is(r.PubSubChannels(ctx, "*"), "[a]")
	is(r.PubSubNumSub(ctx, "a", "none"), "map[a:1 none:0]")
	is(r.PubSubNumPat(ctx), 1)
	check(p.Unsubscribe(ctx, "a"))
	same(receive(p), "unsubscribe: a")
	check(p.PUnsubscribe(ctx))
	same(receive(p), "punsubscribe: p*")
	channel := r.PSubscribe(ctx, "c*")
	defer channel.Close()
	messages := channel.Channel()
	eventually("subscribed", func() bool { return s.side.PubSubNumPat(ctx).Val() == 1 })
	for i := range 100 {
		s.side.Publish(ctx, "c1", i)
	}
	for i := range 100 {
		select {
		case message := <-messages:
			same(message.Payload, i)
		case <-time.After(patience):
			differ("no message %d", i)
		}
	}
	// After its connection was cut, the client subscribes again by itself.
	same(value(s.side.ClientKillByFilter(ctx, "TYPE", "pubsub")) >= 1, true)
	eventually("subscribed again", func() bool {
		s.side.Publish(ctx, "c1", "again")
		select {
		case <-messages:
			return true
		default:
			return false
		}
	})
}

func shardedPubSub(s *session) {
	p := s.r.SSubscribe(ctx, "shard")
	defer p.Close()
	same(receive(p), "ssubscribe: shard")
	is(s.side.SPublish(ctx, "shard", "x"), 1)
	same(receive(p), "Message<shard: x>")
	is(s.r.PubSubShardChannels(ctx, "s*"), "[shard]")
	is(s.r.PubSubShardNumSub(ctx, "shard"), "map[shard:1]")
	check(p.SUnsubscribe(ctx, "shard"))
	same(receive(p), "sunsubscribe: shard")
}

func keyspaceEvents(s *session) {
	is(s.r.ConfigSet(ctx, "notify-keyspace-events", "KEA"), "OK")
	defer s.r.ConfigSet(ctx, "notify-keyspace-events", "")
	p := s.r.PSubscribe(ctx, "__keyevent@0__:*")
	defer p.Close()
	receive(p)
	s.side.Set(ctx, "k", "v", 0)
	same(receive(p), "Message<__keyevent@0__:set: k>")
	s.side.HSet(ctx, "h", "f", "v")
	same(receive(p), "Message<__keyevent@0__:hset: h>")
	s.side.Del(ctx, "k")
	same(receive(p), "Message<__keyevent@0__:del: k>")
	s.side.PExpire(ctx, "h", time.Millisecond)
	same(receive(p), "Message<__keyevent@0__:expire: h>")
	same(receive(p), "Message<__keyevent@0__:expired: h>")
}

func monitor(s *session) {
	if s.protocol != 2 {
		return // the library reads what MONITOR says by RESP2 only
	}
	// The library returns a connection to the pool as soon as it has sent MONITOR, and the pool closes a connection whose
	// reply has arrived by then. A dedicated connection is not returned. Its reads must have no deadline: the library sets one
	// for MONITOR's reply and leaves it in place.
	r := s.client(func(o *redis.Options) { o.ReadTimeout = -1 })
	lines := make(chan string, 100)
	m := r.Conn().Monitor(ctx, lines)
	// Stop waits for a read to return, so the socket is closed before it.
	defer m.Stop()
	defer r.Close()
	m.Start()
	eventually("the command is seen", func() bool {
		s.side.Set(ctx, "seen", "by monitor", 0)
		for {
			select {
			case line := <-lines:
				if strings.Contains(line, `"seen" "by monitor"`) {
					return true
				}
			default:
				return false
			}
		}
	})
}

func clientSideCaching(s *session) {
	if s.protocol != 3 {
		return
	}
	for _, strategy := range []redis.CSCStrategy{redis.CSCStrategySharedTracking} {
		r := s.client(func(o *redis.Options) {
			o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 100}
			o.ClientSideCacheStrategy = strategy
		})
		r.Set(ctx, "k", 1, 0)
		is(r.Get(ctx, "k"), 1)
		is(r.Get(ctx, "k"), 1)
		s.side.Set(ctx, "k", 2, 0)
		eventually("the change is seen", func() bool { return r.Get(ctx, "k").Val() == "2" })
		s.side.HSet(ctx, "h", "f", "v")
		is(r.HGet(ctx, "h", "f"), "v")
		s.side.Del(ctx, "h")
		eventually("the deletion is seen", func() bool { return errors.Is(r.HGet(ctx, "h", "f").Err(), redis.Nil) })
		r.Close()
	}
	conn := s.r.Conn()
	defer conn.Close()
	is(conn.ClientTrackingOn(ctx, &redis.ClientTrackingOptions{Bcast: true, Prefixes: []string{"user:"}, NoLoop: true}), "OK")
	is(conn.ClientTrackingOff(ctx), "OK")
	is(conn.ClientTracking(ctx, true, &redis.ClientTrackingOptions{OptIn: true}), "OK")
	is(conn.ClientTracking(ctx, false, nil), "OK")
}
