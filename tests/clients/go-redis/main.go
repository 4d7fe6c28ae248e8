// go-redis against the server of the environment: every family over RESP3 and RESP2, one line for each that fails.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx     = context.Background()
	address = os.Getenv("REDIS_HOST") + ":" + os.Getenv("REDIS_PORT")
	flintkv = os.Getenv("REDIS_KIND") != "redis"
)

// On a busy machine, immediate effects take a while. Reaching this bound is a failure.
const patience = 60 * time.Second

// A session is what a family gets: a client with an empty database, and a second client.
type session struct {
	protocol int
	r        *redis.Client
	side     *redis.Client
}

// client returns another client, with changed options.
func (s *session) client(change func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: address, Protocol: s.protocol}
	if change != nil {
		change(options)
	}
	return redis.NewClient(options)
}

type family struct {
	name string
	run  func(*session)
}

type difference struct{ text string }

func differ(format string, args ...any) {
	panic(difference{fmt.Sprintf(format, args...)})
}

// value is a command's result; an error fails the family.
func value[T any](cmd interface{ Result() (T, error) }) T {
	got, err := cmd.Result()
	if err != nil {
		differ("%v, where a value was expected", err)
	}
	return got
}

// is compares the printed forms, so that an int equals an int64.
func is[T any](cmd interface{ Result() (T, error) }, expected any) {
	same(value(cmd), expected)
}

func same(got, expected any) {
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		differ("got %v, expected %v", got, expected)
	}
}

// sorted compares a set's members.
func sorted(cmd *redis.StringSliceCmd, expected ...string) {
	got := value[[]string](cmd)
	slices.Sort(got)
	same(got, expected)
}

func within[N int | int64 | float64 | time.Duration](got, low, high N) {
	if got < low || got > high {
		differ("got %v, expected %v to %v", got, low, high)
	}
}

// no expects an error that contains this text.
func no(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		differ("error %v, expected %s", err, text)
	}
}

// none expects the absence of a value.
func none(cmd interface{ Err() error }) {
	if !errors.Is(cmd.Err(), redis.Nil) {
		differ("%v, expected no value", cmd)
	}
}

func eventually(what string, holds func() bool) {
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			differ("it did not happen: %s", what)
		}
	}
}

func check(err error) {
	if err != nil {
		differ("%v", err)
	}
}

// later runs something in another goroutine after a moment, while the test waits.
func later(act func()) {
	go func() {
		// If this fails, the family fails because of what it waits for.
		defer func() { _ = recover() }()
		time.Sleep(50 * time.Millisecond)
		act()
	}()
}

// place is the family's line that caused a panic.
func place() string {
	callers := make([]uintptr, 30)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		file := frame.File[strings.LastIndex(frame.File, "/")+1:]
		if strings.HasPrefix(frame.Function, "main.") && file != "main.go" {
			return fmt.Sprintf("%s:%d", file, frame.Line)
		}
		if !more {
			return "?"
		}
	}
}

func run(f family, protocol int) (wrong string) {
	s := &session{protocol: protocol}
	s.r, s.side = s.client(nil), redis.NewClient(&redis.Options{Addr: address})
	defer s.r.Close()
	defer s.side.Close()
	defer func() {
		if panicked := recover(); panicked != nil {
			if d, ok := panicked.(difference); ok {
				panicked = d.text
			}
			wrong = fmt.Sprintf("%s: %v", place(), panicked)
		}
	}()
	check(s.side.FlushDB(ctx).Err())
	f.run(s)
	return ""
}

//go:embed *.go
var sources embed.FS

// Methods of later Redis versions or of modules, and methods that a test's server must not get.
var unused = strings.Fields(`BLMoveM LMoveM BitOpAndOr BitOpDiff BitOpDiff1 BitOpOne DelExArgs Digest HGetDel HGetEX
	HGetEXWithArgs HImportDiscard HImportDiscardAll HImportPrepare HImportSet HSetEX HSetEXWithArgs IncrEXFloat IncrEXInt
	MSetEX SDiffCard SUnionCard SetIFDEQ SetIFDEQGet SetIFDNE SetIFDNEGet SetIFEQ SetIFEQGet SetIFNE SetIFNEGet XAckDel
	XCfgSet XDelEx XNack XTrimMaxLenApproxMode XTrimMaxLenMode XTrimMinIDApproxMode XTrimMinIDMode Latency LatencyReset
	ClientMaintNotifications ModuleLoadex BgRewriteAOF BgSave Save Shutdown ShutdownNoSave ShutdownSave SlaveOf ReplicaOf
	DebugObject FlushAll FlushAllAsync Sync FCallRo HotKeysGet HotKeysReset HotKeysStart HotKeysStop
	GetMaintNotificationsManager GetPushNotificationHandler RegisterPushNotificationHandler NodeAddress DoRawWriteTo
	AsyncAutoPipeline AsyncAutoPipelineWithOptions AutoPipelineWithOptions CSCStats String ReadOnly ReadWrite Quit`)

// surface names the library's methods that no line here calls.
func surface(*session) {
	var text strings.Builder
	files, _ := sources.ReadDir(".")
	for _, file := range files {
		source, _ := sources.ReadFile(file.Name())
		text.Write(source)
	}
	var missing []string
	client := reflect.TypeFor[*redis.Client]()
	for i := range client.NumMethod() {
		name := client.Method(i).Name
		module := strings.HasPrefix(name, "New") || len(name) > 2 && name[0] == 'V' && name[1] < 'a'
		for _, prefix := range []string{"FT", "JSON", "BF", "CF", "CMS", "TopK", "TDigest", "TS", "AR", "Cluster"} {
			module = module || strings.HasPrefix(name, prefix)
		}
		if !module && !slices.Contains(unused, name) && !strings.Contains(text.String(), "."+name+"(") {
			missing = append(missing, name)
		}
	}
	same(missing, []string{})
}

func main() {
	families := slices.Concat(values, ordered, flow, server, []family{{"surface", surface}})
	passed, failed := 0, 0
	for _, protocol := range []int{3, 2} {
		for _, f := range families {
			if len(os.Args) > 1 && !slices.Contains(os.Args[1:], f.name) {
				continue
			}
			done := make(chan string, 1)
			go func() { done <- run(f, protocol) }()
			var wrong string
			select {
			case wrong = <-done:
			case <-time.After(2 * patience):
				wrong = "it hangs"
			}
			if wrong == "" {
				passed++
			} else {
				failed++
				fmt.Printf("FAIL resp%d %s: %s\n", protocol, f.name, wrong)
			}
		}
	}
	fmt.Printf("passed %d, failed %d\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
