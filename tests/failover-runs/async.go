package main

import (
	"fmt"
	"math/rand"
	"strconv"
	"sync/atomic"
	"time"
)

// Owns the clients of a database that acknowledges at once (`async`), and what a failover may take with it there: the newest writes to a
// shard, made within the time that a primary counts its serving lease, and before it as far as the network delayed them.

// LEASE_COUNTED_MS of the crate cluster.
const leaseCounted = 1300 * time.Millisecond

// A sequence is the numbers that one client has written to a key of its own, in order.
type sequence struct {
	key     key
	written []written
}

type written struct {
	number        int
	sent, replied time.Duration
	acknowledged  bool
}

type losses struct {
	// How many acknowledged writes are lost, the longest time between two of one failover, and what must not be.
	lost  int
	span  time.Duration
	wrong []string
	// For how long packets are lost in this round: so long a replica may be behind, while its answers to heartbeats, which do not wait
	// behind the writes, still grant leases. Of the type time.Duration.
	lag int64
}

// asynchronous is a client that writes growing numbers and reads them back. It writes with ZADD GT, because a write without an answer may still take effect:
// TCP delivers it when the path is whole again, ten seconds later and more, and a SET would undo what was acknowledged meanwhile.
func (losses *losses) asynchronous(l *load, number int, random *rand.Rand) {
	c := &client{load: l, number: number, random: random, at: number % 2}
	defer func() { c.conn.close() }()
	s := sequence{key: key{register, number}}
	read := func() bool {
		if !c.connected() {
			return false
		}
		said, fate := c.send([]string{"ZSCORE", s.key.name(""), "number"})
		if fate == answered {
			found, _ := strconv.Atoi(shown(said).value)
			losses.read(l, &s, found)
		}
		return fate == answered
	}
	for next := 1; c.goesOn(); time.Sleep(time.Duration(random.Int63n(int64(pause / 2)))) {
		if !c.connected() {
			continue
		}
		from := c.now()
		if random.Intn(3) > 0 {
			_, fate := c.send([]string{"ZADD", s.key.name(""), "GT", strconv.Itoa(next), "number"})
			if fate != refused {
				s.written = append(s.written, written{next, from, c.now(), fate == answered})
				next++
			}
			if fate == answered {
				c.count(func() { c.wrote(s.key, c.now()) })
			}
			continue
		}
		read()
	}
	within(patience, read)
}

// read compares what a key has with what was written. Writes that are gone are forgotten: an older value of a later failover is a new loss.
func (losses *losses) read(l *load, s *sequence, found int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var oldest, newest *written
	kept, isWritten := s.written[:0:0], found == 0
	for at := range s.written {
		one := &s.written[at]
		isWritten = isWritten || one.number == found
		switch {
		case one.number <= found || !one.acknowledged:
			kept = append(kept, *one)
		default:
			losses.lost++
			if oldest == nil {
				oldest = one
			}
			newest = one
		}
	}
	if !isWritten {
		losses.wrong = append(losses.wrong, fmt.Sprintf("%s has %d, which nobody has written, or which was gone already", s.key.name(""), found))
	}
	if oldest != nil {
		// The oldest was made after the heartbeat that the lease counts from, and the newest while it was valid.
		span := newest.sent - oldest.replied
		if span > losses.span {
			losses.span = span
		}
		if most := leaseCounted + time.Duration(atomic.LoadInt64(&losses.lag)); span > most {
			losses.wrong = append(losses.wrong, fmt.Sprintf("%s went back from %d to %d: acknowledged writes of %v are lost, and a lease and what delays the stream last %v",
				s.key.name(""), newest.number, found, span, most))
		}
	}
	s.written = kept
}
