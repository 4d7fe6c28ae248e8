package main

import (
	"fmt"
	"math"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// Owns the clients of a run and the histories of their keys. Never knows what is done to the cluster meanwhile.

const (
	clients = 12
	// Clients that only wait for elements of lists.
	blocked = 2
	// Keys of each kind that are used at a time, and how many commands a key gets until the next one takes its place: the search for an order
	// takes longer the longer a history is.
	keysAtATime   = 3
	commandsOfKey = 150
	// Between two commands of a client, at most.
	pause       = 16 * time.Millisecond
	seldomPause = 1500 * time.Millisecond
)

type key struct {
	kind   kind
	number int
}

func (k key) name(part string) string {
	return fmt.Sprintf("%s:{%d}%s", k.kind, k.number, part)
}

type load struct {
	cluster *cluster
	begun   time.Time
	isOver  int32
	// The node whose clients only read, or -1. Then the others write seldom: a primary that is cut off while a write waits for its replica
	// answers no reads either, and what a serving lease is for would never be seen.
	readersAt int32

	mutex     sync.Mutex
	histories map[key][]porcupine.Operation
	// The newest keys of each kind, and how many commands each has had.
	current [kinds][keysAtATime]key
	used    map[key]int
	next    int
	// When a write to a shard was last acknowledged, and the longest time without.
	acknowledged [shards]time.Duration
	longest      [shards]time.Duration
	counts       struct{ acknowledged, unknown, refused, lost int }
	// Error replies that no client should see, and how often.
	strange map[string]int
	waits   sync.WaitGroup
}

const shards = 2

func newLoad(c *cluster) *load {
	l := &load{cluster: c, begun: time.Now(), histories: map[key][]porcupine.Operation{}, used: map[key]int{}, readersAt: -1, strange: map[string]int{}}
	for k := kind(0); k < kinds; k++ {
		for at := range l.current[k] {
			l.current[k][at] = l.newKey(k)
		}
	}
	return l
}

func (l *load) newKey(k kind) key {
	l.next++
	return key{k, l.next}
}

// start lets the clients begin. They draw from the seed, but what they draw depends on how fast they are answered.
func (l *load) start(seed int64, client func(l *load, number int, random *rand.Rand)) {
	for number := 0; number < clients; number++ {
		l.waits.Add(1)
		go func(number int) {
			defer l.waits.Done()
			client(l, number, rand.New(rand.NewSource(seed+int64(number))))
		}(number)
	}
}

func (l *load) stop() {
	atomic.StoreInt32(&l.isOver, 1)
	l.waits.Wait()
}

func (l *load) goesOn() bool { return atomic.LoadInt32(&l.isOver) == 0 }

// onlyReads: the clients of this node, or of none, only read from now on.
func (l *load) onlyReads(at int) { atomic.StoreInt32(&l.readersAt, int32(at)) }

func (l *load) now() time.Duration { return time.Since(l.begun) }

// A client has one connection to one of the nodes with data. When it is lost it makes another one, sometimes to the other node.
type client struct {
	*load
	number int
	random *rand.Rand
	at     int
	conn   *connection
}

// connected is false while no node accepts the connection.
func (c *client) connected() bool {
	if c.conn != nil {
		return true
	}
	var err error
	if c.conn, err = c.cluster.connect(c.at); err != nil {
		c.at = 1 - c.at
		time.Sleep(50 * time.Millisecond)
		return false
	}
	return true
}

func (c *client) isLost() {
	c.conn.close()
	c.conn = nil
	if c.random.Intn(3) == 0 {
		c.at = 1 - c.at
	}
}

// What has become of a command.
type fate int

const (
	answered fate = iota
	// It was not executed.
	refused
	// Nobody knows.
	uncertain
)

// The beginnings of error replies that say that nothing was done.
var refusals = []string{"CLUSTERDOWN", "NOREPLICAS", "LOADING", "OOM", "MISCONF", "EXECABORT"}

func (c *client) send(commands ...[]string) (reply, fate) {
	said, err := c.conn.call(commands...)
	if err != nil {
		c.isLost()
		c.count(func() { c.counts.lost++ })
		return nil, uncertain
	}
	text, isRefusal := said.(refusal)
	if !isRefusal {
		c.count(func() { c.counts.acknowledged++ })
		return said, answered
	}
	for _, known := range refusals {
		if strings.HasPrefix(string(text), known) {
			c.count(func() { c.counts.refused++ })
			time.Sleep(20 * time.Millisecond)
			return nil, refused
		}
	}
	c.count(func() {
		c.counts.unknown++
		if !strings.HasPrefix(string(text), "UNCERTAIN") {
			c.strange[string(text)]++
		}
	})
	return nil, uncertain
}

func (l *load) count(change func()) {
	l.mutex.Lock()
	change()
	l.mutex.Unlock()
}

// note adds a command to a key's history. Of a read without an answer nothing is known, and of a refused command that it has done nothing.
func (c *client) note(of key, from time.Duration, in input, out output, fate fate, isWrite bool) {
	if fate == refused || fate == uncertain && !isWrite {
		return
	}
	to := int64(c.now())
	if fate == uncertain {
		to, out = math.MaxInt64, output{unknown: true}
	}
	operation := porcupine.Operation{ClientId: c.number, Input: in, Output: out, Call: int64(from), Return: to}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.histories[of] = append(c.histories[of], operation)
	if isWrite && fate == answered {
		c.wrote(of, time.Duration(to))
	}
}

func (l *load) wrote(of key, now time.Duration) {
	at := slot(strconv.Itoa(of.number)) * shards / 16384
	if silent := now - l.acknowledged[at]; silent > l.longest[at] {
		l.longest[at] = silent
	}
	l.acknowledged[at] = now
}

// unavailable is the longest time without an acknowledged write to some shard, since it was last asked.
func (l *load) unavailable() (longest time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for at := range l.longest {
		if silent := l.now() - l.acknowledged[at]; silent > l.longest[at] {
			l.longest[at] = silent
		}
		if l.longest[at] > longest {
			longest = l.longest[at]
		}
		l.longest[at] = 0
	}
	return longest
}

func (c *client) draw(of kind) key {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at := c.random.Intn(keysAtATime)
	found := c.current[of][at]
	if c.used[found]++; c.used[found] >= commandsOfKey {
		c.current[of][at] = c.newKey(of)
	}
	return found
}

// linearizable is a client of registers, counters, lists and transactions.
func linearizable(l *load, number int, random *rand.Rand) {
	c := &client{load: l, number: number, random: random, at: number % 2}
	defer func() { c.conn.close() }()
	for written := 0; c.goesOn(); written++ {
		if !c.connected() {
			continue
		}
		value, readersAt := fmt.Sprintf("%d.%d", number, written), int(atomic.LoadInt32(&l.readersAt))
		if readersAt == c.at {
			c.read(kind(random.Intn(int(kinds))))
			time.Sleep(time.Duration(random.Int63n(int64(pause))))
			continue
		}
		if readersAt >= 0 {
			time.Sleep(time.Duration(random.Int63n(int64(seldomPause))))
		}
		if number < blocked {
			c.simple(c.draw(list), input{verb: "BLPOP"}, "1")
			continue
		}
		switch of := kind(random.Intn(int(kinds))); of {
		case register:
			if random.Intn(2) == 0 {
				c.read(of)
			} else {
				c.simple(c.draw(of), input{verb: "SET", value: value}, value)
			}
		case counter:
			switch random.Intn(4) {
			case 0:
				c.read(of)
			case 1:
				by := strconv.Itoa(1 + random.Intn(9))
				c.simple(c.draw(of), input{verb: "INCRBY", value: by}, by)
			default:
				c.simple(c.draw(of), input{verb: "INCR", value: "1"})
			}
		case list:
			if random.Intn(5) < 3 {
				c.simple(c.draw(of), input{verb: "LPUSH", value: value}, value)
			} else if random.Intn(4) > 0 {
				c.simple(c.draw(of), input{verb: "RPOP"})
			} else {
				c.read(of)
			}
		case pair:
			if random.Intn(3) == 0 {
				c.read(of)
			} else {
				c.pair(c.draw(of), value)
			}
		}
		time.Sleep(time.Duration(random.Int63n(int64(pause))))
	}
}

// simple sends one command with one key.
func (c *client) simple(of key, in input, words ...string) {
	from := c.now()
	said, fate := c.send(append([]string{in.verb, of.name("")}, words...))
	c.note(of, from, in, shown(said), fate, in.verb != "GET" && in.verb != "LRANGE")
}

func shown(said reply) output {
	switch said := said.(type) {
	case nil:
		return output{isNil: true}
	case int64:
		return output{value: strconv.FormatInt(said, 10)}
	case []reply:
		elements := make([]string, len(said))
		for at := range said {
			elements[at], _ = said[at].(string)
		}
		if len(elements) == 2 && strings.Contains(elements[0], "{") {
			// BLPOP names the list too.
			return output{value: elements[1]}
		}
		all := strings.Join(elements, ",")
		if len(elements) > 0 {
			all += ","
		}
		return output{value: all}
	case string:
		return output{value: said}
	}
	return output{}
}

// read reads a key of this kind.
func (c *client) read(of kind) { c.readKey(c.draw(of)) }

func (c *client) readKey(of key) {
	switch of.kind {
	case list:
		c.simple(of, input{verb: "LRANGE"}, "0", "-1")
	case pair:
		from := c.now()
		said, fate := c.send([]string{"MULTI"}, []string{"GET", of.name("a")}, []string{"GET", of.name("b")}, []string{"EXEC"})
		values, _ := said.([]reply)
		if fate != answered || len(values) != 2 {
			return
		}
		number := shown(values[1])
		if number.isNil {
			number.value = "0"
		}
		c.note(of, from, input{verb: "BOTH"}, output{value: shown(values[0]).value + " " + number.value}, fate, false)
	default:
		c.simple(of, input{verb: "GET"})
	}
}

// pair changes both keys in a transaction, if nobody has changed the first one since it was read.
func (c *client) pair(of key, value string) {
	a, b := of.name("a"), of.name("b")
	from := c.now()
	said, fate := c.send([]string{"WATCH", a}, []string{"GET", a})
	seen := shown(said)
	c.note(of, from, input{verb: "GET"}, output{value: seen.value}, fate, false)
	if fate != answered {
		if c.conn != nil {
			c.send([]string{"UNWATCH"})
		}
		return
	}
	from = c.now()
	said, fate = c.send([]string{"MULTI"}, []string{"SET", a, value}, []string{"INCR", b}, []string{"EXEC"})
	if fate == answered && said == nil {
		return
	}
	out := output{}
	if values, isList := said.([]reply); isList && len(values) == 2 {
		out = shown(values[1])
	}
	c.note(of, from, input{verb: "EXEC", seen: seen.value, value: value}, out, fate, true)
}

// readAll reads every key that was used, when all faults are over.
func (l *load) readAll() error {
	c := &client{load: l, number: clients, random: rand.New(rand.NewSource(0))}
	defer func() { c.conn.close() }()
	used := make([]key, 0, len(l.histories))
	for of := range l.histories {
		used = append(used, of)
	}
	for _, of := range used {
		isRead := within(patience, func() bool {
			if !c.connected() {
				return false
			}
			before := len(l.histories[of])
			c.readKey(of)
			return len(l.histories[of]) > before
		})
		if !isRead {
			return fmt.Errorf("%s cannot be read after the last fault", of.name(""))
		}
	}
	return nil
}

// slot is CRC-16/XMODEM, as Redis Cluster has it.
func slot(tag string) int {
	crc := uint16(0)
	for at := 0; at < len(tag); at++ {
		crc ^= uint16(tag[at]) << 8
		for bit := 0; bit < 8; bit++ {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// judge looks for an order of each key's commands. It returns the keys that have none, and how many could not be decided in time.
func (l *load) judge(each time.Duration) (wrong []key, undecided int) {
	for of, history := range l.histories {
		switch porcupine.CheckOperationsTimeout(model(of.kind), history, each) {
		case porcupine.Illegal:
			wrong = append(wrong, of)
		case porcupine.Unknown:
			undecided++
		}
	}
	return wrong, undecided
}
