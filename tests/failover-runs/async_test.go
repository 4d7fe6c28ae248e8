package main

import (
	"testing"
	"time"
)

// The client has written 1 to 5, one per second and 10 ms long. The fourth has had no answer.
func TestLosses(t *testing.T) {
	for _, one := range []struct {
		what        string
		found, lost int
		lag         time.Duration
		isWrong     bool
	}{
		{"nothing is lost", 5, 0, 0, false},
		{"the newest is lost", 4, 1, 0, false},
		{"what was written in more than a lease is lost", 2, 2, 0, true},
		{"and the stream was delayed", 2, 2, time.Second, false},
		{"all is lost", 0, 4, time.Second, true},
		{"what nobody has written", 6, 0, 0, true},
	} {
		s := sequence{}
		for number := 1; number <= 5; number++ {
			sent := time.Duration(number) * time.Second
			s.written = append(s.written, written{number, sent, sent + 10*time.Millisecond, number != 4})
		}
		losses := &losses{lag: int64(one.lag)}
		losses.read(&load{}, &s, one.found)
		if losses.lost != one.lost || (len(losses.wrong) > 0) != one.isWrong {
			t.Errorf("%s: %d lost, %v", one.what, losses.lost, losses.wrong)
		}
		again := losses.lost
		losses.read(&load{}, &s, one.found)
		if losses.lost != again {
			t.Errorf("%s: counted twice", one.what)
		}
	}
}
