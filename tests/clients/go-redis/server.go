package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Administration, and the library's use of the network.
var server = []family{
	{"basics", basics},
	{"info", info},
	{"configuration", configuration},
	{"clients", clients},
	{"commands", commands},
	{"acl", acl},
	{"slowlog", slowlog},
	{"standalone", standalone},
	{"pools", pools},
	{"reconnects", reconnects},
	{"timeouts", timeouts},
	{"unix_socket", unixSocket},
	{"tls", tlsSocket},
	{"urls", urls},
}

func basics(s *session) {
	r := s.r
	is(r.Ping(ctx), "PONG")
	is(r.Echo(ctx, "hi"), "hi")
	within(time.Since(value(r.Time(ctx))), -5*time.Second, 5*time.Second)
	is(r.Do(ctx, "SET", "a", 1), "OK")
	n, err := r.Do(ctx, "INCR", "a").Int()
	check(err)
	same(n, 2)
	no(r.Do(ctx, "NONSENSE", "a").Err(), "ERR unknown command 'NONSENSE', with args beginning with: 'a'")
	no(r.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command")
	raw, err := r.DoRaw(ctx, "GET", "a").Result()
	check(err)
	same(string(raw), "$1\r\n2\r\n")
	cmd := redis.NewStringCmd(ctx, "GET", "a")
	check(r.Process(ctx, cmd))
	is(cmd, 2)
	seen := &counter{}
	hooked := s.client(nil)
	defer hooked.Close()
	hooked.AddHook(seen)
	is(hooked.Ping(ctx), "PONG")
	same(seen.commands >= 1, true)
}

// counter is a hook that counts.
type counter struct{ commands int }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.commands++; return next(ctx, cmd) }
}
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func info(s *session) {
	r := s.r
	same(strings.Contains(value(r.Info(ctx)), "redis_version:7."), true)
	same(strings.Contains(value(r.Info(ctx, "server", "memory")), "used_memory:"), true)
	same(value(r.InfoMap(ctx, "replication"))["Replication"]["role"], "master")
}

func configuration(s *session) {
	r := s.r
	same(len(value(r.ConfigGet(ctx, "hash-max-listpack-*"))), 2)
	is(r.ConfigSet(ctx, "slowlog-max-len", "128"), "OK")
	is(r.ConfigGet(ctx, "slowlog-max-len"), "map[slowlog-max-len:128]")
	no(r.ConfigSet(ctx, "nonsense", "1").Err(), "ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'")
	is(r.ConfigResetStat(ctx), "OK")
	no(r.ConfigRewrite(ctx).Err(), "without a config file")
}

func clients(s *session) {
	r := s.client(func(o *redis.Options) { o.ClientName = "me"; o.PoolSize = 1 })
	defer r.Close()
	is(r.ClientGetName(ctx), "me")
	me := value(r.ClientID(ctx))
	mine := value(r.ClientInfo(ctx))
	same([]any{mine.ID, mine.Name, mine.LastCmd}, []any{me, "me", "client|info"})
	if flintkv {
		same(strings.HasPrefix(mine.LibName, "go-redis"), true)
	}
	same(strings.Contains(value(r.ClientList(ctx)), "name=me"), true)
	later(func() { s.side.ClientUnblock(ctx, me) })
	none(r.BLPop(ctx, 5*time.Second, "none"))
	later(func() { s.side.ClientUnblockWithError(ctx, me) })
	no(r.BLPop(ctx, 5*time.Second, "none").Err(), "UNBLOCKED client unblocked via CLIENT UNBLOCK")
	is(r.ClientPause(ctx, 30*time.Millisecond), true)
	is(r.ClientUnpause(ctx), true)
	is(r.ClientKillByFilter(ctx, "ID", "999999999"), 0)
	no(r.ClientKill(ctx, "1.2.3.4:5").Err(), "ERR No such client")
	conn := r.Conn()
	defer conn.Close()
	is(conn.ClientSetName(ctx, "you"), true)
	is(conn.ClientGetName(ctx), "you")
	if flintkv {
		check(conn.ClientSetInfo(ctx, redis.WithLibraryName("mine")).Err())
	}
	is(conn.Select(ctx, 1), "OK")
	is(conn.SwapDB(ctx, 1, 2), "OK")
	is(conn.Select(ctx, 0), "OK")
	same(value(conn.Hello(ctx, s.protocol, "", "", ""))["proto"], s.protocol)
}

func commands(s *session) {
	r := s.r
	none := value(r.XLen(ctx, "none")) + value(r.Eval(ctx, "return 0", nil)).(int64)
	same(none, 0)
	get := value(r.Command(ctx))["get"]
	same([]any{get.Arity, get.FirstKeyPos, get.ReadOnly}, "[2 1 true]")
	is(r.CommandGetKeys(ctx, "MSET", "a", 1, "b", 2), "[a b]")
	same(value(r.CommandGetKeysAndFlags(ctx, "GET", "a"))[0].Key, "a")
	same(len(value(r.CommandList(ctx, nil))) > 200, true)
	same(len(value(r.CommandList(ctx, &redis.FilterBy{ACLCat: "string"}))) > 15, true)
	same(len(value(r.CommandList(ctx, &redis.FilterBy{Pattern: "xg*"}))) > 0, true)
}

func acl(s *session) {
	r := s.r
	is(r.ACLWhoAmI(ctx), "default")
	is(r.ACLSetUser(ctx, "worker", "reset", "on", ">secret", "~w:*", "&news", "+@string", "+acl|whoami", "-append"), "OK")
	defer r.ACLDelUser(ctx, "worker")
	same(strings.Contains(fmt.Sprint(value(r.ACLUsers(ctx))), "worker"), true)
	same(strings.Contains(fmt.Sprint(value(r.ACLList(ctx))), "user worker on"), true)
	same(strings.Contains(fmt.Sprint(value(r.ACLCat(ctx))), "string"), true)
	same(strings.Contains(fmt.Sprint(value(r.ACLCatArgs(ctx, &redis.ACLCatArgs{Category: "hash"}))), "hset"), true)
	same(len(value(r.ACLGenPass(ctx, 256))), 64)
	w := s.client(func(o *redis.Options) { o.Username, o.Password = "worker", "secret" })
	defer w.Close()
	is(w.ACLWhoAmI(ctx), "worker")
	is(w.Set(ctx, "w:1", "v", 0), "OK")
	no(w.Set(ctx, "x", "v", 0).Err(), "NOPERM")
	no(w.Append(ctx, "w:1", "v").Err(), "NOPERM")
	same(value(r.ACLLog(ctx, 10))[0].Username, "worker")
	is(r.ACLLogReset(ctx), "OK")
	is(r.ACLDryRun(ctx, "worker", "get", "w:1"), "OK")
	wrong := s.client(func(o *redis.Options) { o.Username, o.Password = "worker", "wrong" })
	defer wrong.Close()
	no(wrong.Ping(ctx).Err(), "WRONGPASS invalid username-password pair or user is disabled.")
	provider := s.client(func(o *redis.Options) {
		o.CredentialsProvider = func() (string, string) { return "worker", "secret" }
	})
	defer provider.Close()
	is(provider.ACLWhoAmI(ctx), "worker")
}

func slowlog(s *session) {
	r := s.r
	defer r.ConfigSet(ctx, "slowlog-log-slower-than", "10000")
	is(r.ConfigSet(ctx, "slowlog-max-len", "100000"), "OK")
	is(r.ConfigSet(ctx, "slowlog-log-slower-than", "0"), "OK")
	r.Set(ctx, "k", "v", 0)
	found := false
	for _, entry := range value(r.SlowLogGet(ctx, -1)) {
		found = found || strings.EqualFold(strings.Join(entry.Args, " "), "set k v")
	}
	same(found, true)
	same(value(r.SlowLogLen(ctx)) > 0, true)
	is(r.SlowLogReset(ctx), "OK")
}

func standalone(s *session) {
	r := s.r
	is(r.Wait(ctx, 0, time.Millisecond), 0)
	if flintkv {
		// With a journal, the writes before may be durable already.
		reached := fmt.Sprint(value(r.WaitAOF(ctx, 0, 0, time.Millisecond)))
		same(reached == "[0 0]" || reached == "[1 0]", true)
	}
	same(value(r.LastSave(ctx)) > 0, true)
	no(r.ClusterInfo(ctx).Err(), "ERR This instance has cluster support disabled")
}

func pools(s *session) {
	r := s.client(func(o *redis.Options) { o.PoolSize = 4; o.MinIdleConns = 2 })
	defer r.Close()
	var wait sync.WaitGroup
	var refused atomic.Value
	for range 50 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range 20 {
				if err := r.Incr(ctx, "n").Err(); err != nil {
					refused.Store(err)
				}
			}
		}()
	}
	wait.Wait()
	same(refused.Load(), nil)
	is(r.Get(ctx, "n"), 1000)
	same(r.PoolStats().TotalConns <= 4, true)
	same(r.Options().PoolSize, 4)
}

func reconnects(s *session) {
	r := s.client(func(o *redis.Options) { o.PoolSize = 1 })
	defer r.Close()
	first := value(r.ClientID(ctx))
	is(s.side.ClientKillByFilter(ctx, "ID", fmt.Sprint(first)), 1)
	is(r.Ping(ctx), "PONG")
	same(value(r.ClientID(ctx)) != first, true)
}

func timeouts(s *session) {
	r := s.client(func(o *redis.Options) { o.MaxRetries = -1 })
	defer r.Close()
	hasty := r.WithTimeout(50 * time.Millisecond)
	err := hasty.Do(ctx, "BLPOP", "none", 1).Err()
	var timeout net.Error
	same(errors.As(err, &timeout) && timeout.Timeout(), true)
	is(r.Ping(ctx), "PONG")
	closed := s.client(func(o *redis.Options) { o.Addr = "127.0.0.1:1"; o.MaxRetries = -1; o.DialerRetries = 1 })
	defer closed.Close()
	no(closed.Ping(ctx).Err(), "refused")
}

func unixSocket(s *session) {
	path := os.Getenv("REDIS_SOCKET")
	if path == "" {
		return
	}
	r := s.client(func(o *redis.Options) { o.Network, o.Addr = "unix", path })
	defer r.Close()
	is(r.Set(ctx, "k", "v", 0), "OK")
	is(r.Get(ctx, "k"), "v")
}

func tlsSocket(s *session) {
	port, certs := os.Getenv("REDIS_TLS_PORT"), os.Getenv("REDIS_CERTS")
	if port == "" {
		return
	}
	authority, err := os.ReadFile(certs + "/ca.crt")
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	mine, err := tls.LoadX509KeyPair(certs+"/client.crt", certs+"/client.key")
	check(err)
	with := func(config *tls.Config) *redis.Client {
		return s.client(func(o *redis.Options) {
			o.Addr, o.TLSConfig, o.MaxRetries, o.DialerRetries = "localhost:"+port, config, -1, 1
		})
	}
	r := with(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{mine}})
	defer r.Close()
	big := strings.Repeat("x", 100_000)
	is(r.Set(ctx, "k", big, 0), "OK")
	is(r.Get(ctx, "k"), big)
	older := with(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{mine}, MaxVersion: tls.VersionTLS12})
	defer older.Close()
	is(older.Ping(ctx), "PONG")
	unknown := with(&tls.Config{Certificates: []tls.Certificate{mine}})
	defer unknown.Close()
	no(unknown.Ping(ctx).Err(), "certificate")
	nobody := with(&tls.Config{RootCAs: roots})
	defer nobody.Close()
	no(nobody.Ping(ctx).Err(), "")
}

func urls(s *session) {
	options, err := redis.ParseURL(fmt.Sprintf("redis://%s/1?protocol=%d&client_name=url", address, s.protocol))
	check(err)
	r := redis.NewClient(options)
	defer r.Close()
	is(r.ClientGetName(ctx), "url")
	universal := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{address}, Protocol: s.protocol})
	defer universal.Close()
	is(universal.Ping(ctx), "PONG")
}
