package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Owns what a key of each kind may answer, one command after the other, as Porcupine wants it: a history is good if some order of its
// commands, in which each lies between its sending and its reply, agrees with these steps.
//
// A write without a known outcome is a command whose reply never came: it may take effect at any later time. If it never does, its place
// is behind all others, where nobody sees it.

type kind int

const (
	register kind = iota
	counter
	list
	pair
	kinds
)

func (k kind) String() string { return [...]string{"register", "counter", "list", "pair"}[k] }

// What a client has sent about one key.
type input struct {
	verb  string
	value string
	// Of an EXEC: what was read under WATCH.
	seen string
}

// What it was answered. A write that is unknown may take effect at any later time.
type output struct {
	unknown bool
	value   string
	// Of a list that has no element, and of a key that is not there.
	isNil bool
}

func step(of kind) func(state, in, out interface{}) (bool, interface{}) {
	steps := [...]func(string, input, output) (bool, string){stepRegister, stepCounter, stepList, stepPair}
	one := steps[of]
	return func(state, in, out interface{}) (bool, interface{}) {
		good, next := one(state.(string), in.(input), out.(output))
		return good, next
	}
}

func model(of kind) porcupine.Model {
	return porcupine.Model{
		Init:              func() interface{} { return map[kind]string{counter: "0", pair: " 0"}[of] },
		Step:              step(of),
		DescribeOperation: func(in, out interface{}) string { return fmt.Sprintf("%+v %+v", in, out) },
	}
}

// The state is the value. Every value is written once; the empty one is that of a key that is not there.
func stepRegister(state string, in input, out output) (bool, string) {
	if in.verb == "SET" {
		return true, in.value
	}
	return out.value == state, state
}

func stepCounter(state string, in input, out output) (bool, string) {
	if in.verb == "GET" {
		return out.value == state || out.isNil && state == "0", state
	}
	next := plus(state, in.value)
	return out.unknown || out.value == next, next
}

func plus(number, by string) string {
	a, _ := strconv.ParseInt(number, 10, 64)
	b, _ := strconv.ParseInt(by, 10, 64)
	return strconv.FormatInt(a+b, 10)
}

// The state is the elements, the first one first, each followed by a comma.
func stepList(state string, in input, out output) (bool, string) {
	taken, rest := "", state
	switch in.verb {
	case "LPUSH":
		next := in.value + "," + state
		return out.unknown || out.value == strconv.Itoa(strings.Count(next, ",")), next
	case "LRANGE":
		return out.value == state, state
	case "RPOP":
		if state != "" {
			at := strings.LastIndexByte(state[:len(state)-1], ',') + 1
			taken, rest = state[at:len(state)-1], state[:at]
		}
	case "BLPOP":
		if state != "" {
			at := strings.IndexByte(state, ',')
			taken, rest = state[:at], state[at+1:]
		}
	}
	return out.unknown || (out.isNil && state == "") || (!out.isNil && state != "" && out.value == taken), rest
}

// The state is a register and a counter, which only change together: "VALUE NUMBER". An EXEC succeeds only if the register still has
// what was read under WATCH.
func stepPair(state string, in input, out output) (bool, string) {
	space := strings.IndexByte(state, ' ')
	value, number := state[:space], state[space+1:]
	switch in.verb {
	case "GET":
		return out.value == value, state
	case "BOTH":
		return out.value == state, state
	}
	next := plus(number, "1")
	if value != in.seen {
		return out.unknown, state
	}
	return out.unknown || out.value == next, in.value + " " + next
}
