package main

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
)

// at is an operation from one time to another. To the end of time: nobody knows its outcome.
func at(from, to int64, in input, out output) porcupine.Operation {
	if out.unknown {
		to = math.MaxInt64
	}
	return porcupine.Operation{Input: in, Output: out, Call: from, Return: to}
}

func set(value string) input        { return input{verb: "SET", value: value} }
func get() input                    { return input{verb: "GET"} }
func is(value string) output        { return output{value: value} }
func executed(seen, v string) input { return input{verb: "EXEC", seen: seen, value: v} }
func add() input                    { return input{verb: "INCR", value: "1"} }
func push(value string) input       { return input{verb: "LPUSH", value: value} }
func pop() input                    { return input{verb: "RPOP"} }
func rest() input                   { return input{verb: "LRANGE"} }

var unknown, none = output{unknown: true}, output{isNil: true}

func TestHistories(t *testing.T) {
	for _, one := range []struct {
		what    string
		of      kind
		isGood  bool
		history []porcupine.Operation
	}{
		{"reads beside a write see the old or the new value", register, true, []porcupine.Operation{
			at(0, 1, set("a"), is("")), at(2, 9, set("b"), is("")), at(3, 4, get(), is("a")), at(5, 6, get(), is("b"))}},
		{"a stale read", register, false, []porcupine.Operation{
			at(0, 1, set("a"), is("")), at(2, 3, set("b"), is("")), at(4, 5, get(), is("a"))}},
		{"a value that goes back", register, false, []porcupine.Operation{
			at(0, 1, set("a"), is("")), at(2, 9, set("b"), is("")), at(3, 4, get(), is("b")), at(5, 6, get(), is("a"))}},
		{"a lost write", register, false, []porcupine.Operation{at(0, 1, set("a"), is("")), at(2, 3, get(), none)}},
		{"an unknown write that takes effect late", register, true, []porcupine.Operation{
			at(0, 0, set("a"), unknown), at(1, 2, set("b"), is("")), at(3, 4, get(), is("b")), at(5, 6, get(), is("a"))}},
		{"an unknown write that takes effect twice", register, false, []porcupine.Operation{
			at(0, 0, set("a"), unknown), at(1, 2, get(), is("a")), at(3, 4, set("b"), is("")), at(5, 6, get(), is("a"))}},
		{"an unknown increment that is never made", counter, true, []porcupine.Operation{
			at(0, 1, add(), is("1")), at(2, 0, add(), unknown), at(3, 4, get(), is("1"))}},
		{"an increment that was made twice", counter, false, []porcupine.Operation{
			at(0, 1, add(), is("1")), at(2, 0, add(), unknown), at(3, 4, get(), is("3"))}},
		{"a lost increment", counter, false, []porcupine.Operation{
			at(0, 1, add(), is("1")), at(2, 3, add(), is("2")), at(4, 5, get(), is("1"))}},
		{"a pop of unknown outcome", list, true, []porcupine.Operation{
			at(0, 1, push("a"), is("1")), at(2, 3, push("b"), is("2")), at(4, 0, pop(), unknown), at(5, 6, rest(), is("b,"))}},
		{"an element that was taken twice", list, false, []porcupine.Operation{
			at(0, 1, push("a"), is("1")), at(2, 3, pop(), is("a")), at(4, 5, pop(), is("a"))}},
		{"a blocked pop that missed an element", list, false, []porcupine.Operation{
			at(0, 1, push("a"), is("1")), at(2, 9, input{verb: "BLPOP"}, none)}},
		{"a blocked pop", list, true, []porcupine.Operation{
			at(0, 9, input{verb: "BLPOP"}, is("a")), at(1, 2, push("a"), is("1")), at(10, 11, rest(), is(""))}},
		{"a transaction whose key nobody has changed", pair, true, []porcupine.Operation{
			at(0, 1, executed("", "a"), is("1")), at(2, 3, executed("a", "b"), is("2")), at(4, 5, input{verb: "BOTH"}, is("b 2"))}},
		{"a transaction that did not notice a change", pair, false, []porcupine.Operation{
			at(0, 1, executed("", "a"), is("1")), at(2, 3, executed("", "b"), is("2"))}},
		{"half a transaction", pair, false, []porcupine.Operation{
			at(0, 1, executed("", "a"), is("1")), at(2, 0, executed("a", "b"), unknown), at(4, 5, input{verb: "BOTH"}, is("b 1"))}},
	} {
		if good := porcupine.CheckOperations(model(one.of), one.history); good != one.isGood {
			t.Errorf("%s: %v", one.what, good)
		}
	}
}
