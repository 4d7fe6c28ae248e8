package main

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"time"
)

// Owns one run: a cluster that is begun anew, some faults one after the other, and the verdict. All that is drawn comes from its seed.

type round struct {
	phase  phase
	faults []fault
	// From the phase's begin to the first fault, and the time that each fault lasts.
	after, lasts []time.Duration
	// The node whose clients only read, or -1.
	readersAt int
	seed      int64
}

type plan struct {
	seed        int64
	replication string
	persistence string
	ramLimit    string
	hasClocks   bool
	// Whether the binary has switchovers and drains.
	canMove bool
	rounds  []round
}

type options struct {
	replication, persistence string
	faults, phases           []string
	rounds                   int
	canMove                  bool
}

type run struct {
	plan    plan
	cluster *cluster
	load    *load
	folder  string
	// The node that has just lost all that it had. A fault that ends a process hits this one.
	lost      *node
	readersAt int
	// What has gone wrong.
	wrong []string
}

func (r *run) must(err error) {
	if err != nil {
		r.fails("the run itself: %v", err)
	}
}

func (r *run) fails(format string, values ...interface{}) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, values...))
}

// draw makes the plan of a seed.
func draw(seed int64, o options) plan {
	random := rand.New(rand.NewSource(seed))
	pick := func(given string, from ...string) string {
		drawn := from[random.Intn(len(from))]
		if given != "" {
			return given
		}
		return drawn
	}
	p := plan{
		seed:        seed,
		replication: pick(o.replication, "sync", "sync", "sync", "async"),
		persistence: pick(o.persistence, "none", "none", "everysec", "always"),
		ramLimit:    pick("", "40%", "100%"),
		canMove:     o.canMove,
		hasClocks:   random.Intn(4) == 0 && fakeTime() != "",
	}
	for _, name := range o.faults {
		p.hasClocks = p.hasClocks || name == "clock"
	}
	planned := &run{plan: p}
	for len(p.rounds) < o.rounds {
		var possible []phase
		for _, phase := range phases {
			if isWanted(phase.name, o.phases) && (phase.needs == nil || phase.needs(planned)) {
				possible = append(possible, phase)
			}
		}
		if len(possible) == 0 {
			break
		}
		one := round{phase: possible[random.Intn(len(possible))], readersAt: random.Intn(3) - 1, seed: random.Int63()}
		endsData := one.phase.endsData
		for count := 1 + random.Intn(3)/2; count > 0; count-- {
			var possible []fault
			for _, fault := range faults {
				// With persistence both nodes may be killed.
				if isWanted(fault.name, o.faults) && (fault.needs == nil || fault.needs(planned)) && !(fault.endsData && endsData && !hasPersistence(planned)) {
					possible = append(possible, fault)
				}
			}
			if len(possible) == 0 {
				break
			}
			drawn := possible[random.Intn(len(possible))]
			endsData = endsData || drawn.endsData
			one.faults = append(one.faults, drawn)
			one.after = append(one.after, time.Duration(random.Intn(1500))*time.Millisecond)
			one.lasts = append(one.lasts, 500*time.Millisecond+time.Duration(random.Intn(8000))*time.Millisecond)
		}
		p.rounds = append(p.rounds, one)
	}
	return p
}

func isWanted(name string, names []string) bool {
	for _, one := range names {
		if one == name {
			return true
		}
	}
	return len(names) == 0
}

func (p plan) String() string {
	text := fmt.Sprintf("seed %d: %s, persistence %s, RAM limit %s", p.seed, p.replication, p.persistence, p.ramLimit)
	if p.hasClocks {
		text += ", wall clocks that can be set"
	}
	return text
}

// victim is the node of a shard's primary twice out of three times. Where clients only read, it is their node half of the time.
func (r *run) victim(random *rand.Rand) *node {
	shard, any, isPrimary, isOfReaders := random.Intn(shards), random.Intn(2), random.Intn(3) > 0, random.Intn(2) == 0
	if r.lost != nil {
		return r.lost
	}
	if r.readersAt >= 0 && isOfReaders {
		return r.cluster.nodes[r.readersAt]
	}
	if isPrimary {
		if primaries := r.cluster.primaries(); shard < len(primaries) && primaries[shard] != nil {
			return primaries[shard]
		}
	}
	return r.cluster.nodes[any]
}

func (r *run) etcd(n *node) *process {
	if n.isData {
		return &n.coordinator
	}
	return &n.server
}

// staysInSync: a set that is about to shrink, because a copy was silent a moment ago, shrinks within this time.
func (r *run) staysInSync() error {
	if err := r.cluster.isInSync(); err != nil {
		return err
	}
	time.Sleep(1500 * time.Millisecond)
	return r.cluster.isInSync()
}

// beganEmpty: a shard whose copies were all killed began anew, so what was acknowledged is lost. On a slow machine a copy may leave the
// set at the wrong moment in spite of staysInSync.
func (r *run) beganEmpty() bool {
	names, _ := filepath.Glob(filepath.Join(r.folder, "*.log"))
	for _, name := range names {
		if log, err := os.ReadFile(name); err == nil && strings.Contains(string(log), "it begins empty") {
			return true
		}
	}
	return false
}

// others are rules about all other nodes.
func (r *run) others(chain, which string, n *node) (rules [][2]string) {
	for _, other := range r.cluster.nodes {
		if other != n {
			rules = append(rules, [2]string{chain, which + " " + other.address})
		}
	}
	return rules
}

func (r *run) heal() error {
	for _, n := range r.cluster.nodes {
		if err := n.healed(); err != nil {
			return err
		}
	}
	return nil
}

// populate writes keys that no history has, so that a full synchronisation takes a while. What is refused is not repeated.
func (r *run) populate() {
	value := strings.Repeat("x", 1000)
	conn, err := r.cluster.connect(0)
	for number := 0; number < 20000 && err == nil; number += 50 {
		var sent []byte
		for at := number; at < number+50; at++ {
			sent = encode(sent, "SET", fmt.Sprintf("filler:%d", at), fmt.Sprintf("%d%s", at, value))
		}
		_, err = conn.send(sent, 50)
	}
	conn.close()
}

// execute does what is planned and returns what has gone wrong.
func execute(flintkv, folder string, p plan) []string {
	fmt.Println(p)
	r := &run{plan: p, folder: folder}
	random := rand.New(rand.NewSource(p.seed))
	w := wishes{folder: folder, dataMB: 2600, etcdMB: 300, hasClocks: p.hasClocks}
	for at := range w.aheadS {
		// Not all nodes have been started on the same day.
		w.aheadS[at] = random.Intn(3) * (1 + random.Intn(1000000))
	}
	w.create = []string{"--shards", fmt.Sprint(shards), "--replicas", "1", "--replication", p.replication, "--memory-limit", "320mb",
		"--ram-limit", p.ramLimit, "--persistence", p.persistence}
	begun := time.Now()
	var err error
	if r.cluster, err = begin(flintkv, w); err != nil {
		r.fails("the cluster does not begin: %v", err)
		return r.wrong
	}
	began := time.Since(begun)

	r.load = newLoad(r.cluster)
	losses := &losses{}
	client := linearizable
	if p.replication == "async" {
		client = losses.asynchronous
	}
	r.load.start(p.seed, client)
	time.Sleep(time.Second)
	for _, round := range p.rounds {
		atomic.StoreInt64(&losses.lag, int64(round.lossLasts()))
		r.carryOut(round)
		if len(r.wrong) > 0 {
			break
		}
	}
	time.Sleep(time.Second)
	r.load.stop()
	r.judge(losses)
	fmt.Printf("  began in %.0f s, %.0f s in all; %+v\n", began.Seconds(), time.Since(begun).Seconds(), r.load.counts)
	return r.wrong
}

// lossLasts is for how long packets are lost.
func (one round) lossLasts() (lasts time.Duration) {
	for at, fault := range one.faults {
		if fault.name == "loss" {
			lasts += one.after[at] + one.lasts[at]
		}
	}
	return lasts
}

func (r *run) carryOut(one round) {
	random := rand.New(rand.NewSource(one.seed))
	r.readersAt = one.readersAt
	r.load.onlyReads(one.readersAt)
	r.load.unavailable()
	begun := time.Now()
	phaseEnds := one.phase.begin(r, random)
	var said []string
	ends := make(chan error, len(one.faults))
	for at, fault := range one.faults {
		time.Sleep(one.after[at])
		if fault.endsData && !hasPersistence(r) {
			// The loss of the last copy is a loss of what was acknowledged.
			r.must(r.staysInSync())
		}
		what, end := fault.begin(r, random)
		lasts := one.lasts[at]
		said = append(said, fmt.Sprintf("%s for %v", what, lasts))
		go func() {
			time.Sleep(lasts)
			ends <- end()
		}()
	}
	for range one.faults {
		r.must(<-ends)
	}
	r.must(r.heal())
	r.must(phaseEnds())
	if err := r.cluster.isInSync(); err != nil {
		r.fails("%v", err)
	}
	about := one.phase.name
	if one.readersAt >= 0 {
		about += fmt.Sprintf(", clients of n%d only read", one.readersAt+1)
	}
	fmt.Printf("  %s: %s; unavailable for %v, in sync after %.1f s\n", about, strings.Join(said, "; "),
		r.load.unavailable().Round(10*time.Millisecond), time.Since(begun).Seconds())
}

// judge looks at the histories, at the processes, and at the copies.
func (r *run) judge(losses *losses) {
	for _, what := range r.cluster.trouble() {
		r.fails("%s", what)
	}
	var strange []string
	for text, count := range r.load.strange {
		strange = append(strange, fmt.Sprintf("%d times %q", count, text))
	}
	sort.Strings(strange)
	for _, text := range strange {
		r.fails("clients got an error that they should not get: %s", text)
	}
	if !hasPersistence(r) && r.beganEmpty() {
		fmt.Println("  no verdict on what was acknowledged: the last copy of a shard without persistence was killed")
		return
	}
	if r.plan.replication == "async" {
		r.wrong = append(r.wrong, losses.wrong...)
		fmt.Printf("  %d acknowledged writes are lost, the longest time between two of one failover: %v\n", losses.lost, losses.span)
	} else {
		if err := r.load.readAll(); err != nil {
			r.fails("%v", err)
		}
		wrong, undecided := r.load.judge(10 * time.Second)
		fmt.Printf("  %d keys, %d have no order, %d could not be decided\n", len(r.load.histories), len(wrong), undecided)
		for _, of := range wrong {
			file := filepath.Join(r.folder, of.kind.String()+fmt.Sprint(of.number)+".history")
			r.must(r.load.write(of, file))
			r.fails("the replies about %s are not those of one copy: %s", of.name(""), file)
		}
	}
	if len(r.wrong) == 0 {
		r.must(r.compare())
	}
}

// compare waits until every copy has been compared with its primary, or its replica, at one offset of their stream.
func (r *run) compare() error {
	var before, now map[string]compared
	var err error
	if !within(patience, func() bool { before, err = r.cluster.comparisons(); return err == nil }) {
		return err
	}
	isDone := within(patience, func() bool {
		if now, err = r.cluster.comparisons(); err != nil || len(now) != 2*shards {
			return false
		}
		for key, copy := range now {
			if copy.done == before[key].done && copy.differences == before[key].differences {
				return false
			}
		}
		return true
	})
	for key, copy := range now {
		if copy.differences > 0 {
			r.fails("the dataset of %s was not its primary's", key)
		}
	}
	if !isDone {
		return fmt.Errorf("the copies were not compared: %v %v", now, err)
	}
	return nil
}

// write makes a file that shows the history of a key.
func (l *load) write(of key, name string) error {
	history := l.histories[of]
	sort.Slice(history, func(a, b int) bool { return history[a].Call < history[b].Call })
	var text strings.Builder
	for _, operation := range history {
		in, out := operation.Input.(input), operation.Output.(output)
		fmt.Fprintf(&text, "%9.4f %9.4f client %2d: %+v -> %+v\n", float64(operation.Call)/1e9, float64(operation.Return)/1e9, operation.ClientId, in, out)
	}
	return os.WriteFile(name, []byte(text.String()), 0o644)
}
