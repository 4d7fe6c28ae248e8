package main

import (
	"fmt"
	"math/rand"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Owns what can be done to a cluster. Every fault has an end, after which the cluster must recover by itself.

type fault struct {
	name string
	// Whether a process that keeps data ends. Without persistence the loss of both copies is no mistake of the product.
	endsData bool
	// Whether it needs what not every run has.
	needs func(*run) bool
	// begin returns what it does in words, and how it ends.
	begin func(*run, *rand.Rand) (string, func() error)
}

func hasPersistence(r *run) bool { return r.plan.persistence != "none" }

// faults is the list from which a run draws. A new one needs an entry here.
var faults = []fault{
	{name: "kill", endsData: true, begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.victim(random)
		n.server.end(syscall.SIGKILL)
		return "kill -9 of " + n.name, n.server.run
	}},
	{name: "kill-machine", endsData: true, begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.victim(random)
		n.server.end(syscall.SIGKILL)
		n.coordinator.end(syscall.SIGKILL)
		return "kill -9 of all processes of " + n.name, n.run
	}},
	{name: "kill-both", endsData: true, needs: hasPersistence, begin: func(r *run, random *rand.Rand) (string, func() error) {
		first := random.Intn(2)
		r.cluster.nodes[first].server.end(syscall.SIGKILL)
		time.Sleep(time.Duration(random.Intn(1500)) * time.Millisecond)
		r.cluster.nodes[1-first].server.end(syscall.SIGKILL)
		return "kill -9 of both nodes with data, n" + fmt.Sprint(first+1) + " first", func() error {
			if err := r.cluster.nodes[1-first].server.run(); err != nil {
				return err
			}
			return r.cluster.nodes[first].server.run()
		}
	}},
	{name: "pause", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.victim(random)
		n.server.tell(syscall.SIGSTOP)
		return "SIGSTOP of " + n.name, func() error { n.server.tell(syscall.SIGCONT); return nil }
	}},
	{name: "pauses", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n, ends, ended := r.victim(random), make(chan struct{}), make(chan struct{})
		times := rand.New(rand.NewSource(random.Int63()))
		go func() {
			defer close(ended)
			for {
				n.server.tell(syscall.SIGSTOP)
				time.Sleep(time.Duration(times.Intn(2500)) * time.Millisecond)
				n.server.tell(syscall.SIGCONT)
				select {
				case <-ends:
					return
				case <-time.After(time.Duration(times.Intn(1500)) * time.Millisecond):
				}
			}
		}()
		return "SIGSTOP and SIGCONT of " + n.name + " in turns", func() error { close(ends); <-ended; return nil }
	}},
	{name: "pause-machine", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.cluster.nodes[random.Intn(3)]
		n.server.tell(syscall.SIGSTOP)
		n.coordinator.tell(syscall.SIGSTOP)
		return "SIGSTOP of all processes of " + n.name, func() error {
			n.coordinator.tell(syscall.SIGCONT)
			n.server.tell(syscall.SIGCONT)
			return nil
		}
	}},
	// Clients still reach the node.
	{name: "isolate", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.victim(random)
		r.must(n.drop(append(r.others("in", "ip saddr", n), r.others("out", "ip daddr", n)...)...))
		return "nothing goes between " + n.name + " and the other nodes", r.heal
	}},
	{name: "cut", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.victim(random)
		if random.Intn(2) == 0 {
			r.must(n.drop(r.others("in", "ip saddr", n)...))
			return n.name + " hears nothing of the other nodes", r.heal
		}
		r.must(n.drop(r.others("out", "ip daddr", n)...))
		return "the other nodes hear nothing of " + n.name, r.heal
	}},
	{name: "cut-one", begin: func(r *run, random *rand.Rand) (string, func() error) {
		from, to := random.Intn(3), random.Intn(2)
		to = (from + 1 + to) % 3
		r.must(r.cluster.nodes[to].drop([2]string{"in", "ip saddr " + r.cluster.nodes[from].address}))
		return fmt.Sprintf("nothing from n%d arrives at n%d", from+1, to+1), r.heal
	}},
	{name: "cut-machine", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n, chains := r.victim(random), [][]string{{"in"}, {"out"}, {"in", "out"}}[random.Intn(3)]
		var rules [][2]string
		for _, chain := range chains {
			rules = append(rules, [2]string{chain, map[string]string{"in": "iif", "out": "oif"}[chain] + " eth0"})
		}
		r.must(n.drop(rules...))
		return fmt.Sprintf("nothing goes %v of %s, for clients neither", chains, n.name), r.heal
	}},
	{name: "loss", begin: func(r *run, random *rand.Rand) (string, func() error) {
		percent := []int{2, 10, 30}[random.Intn(3)]
		for _, n := range r.cluster.nodes {
			r.must(n.drop([2]string{"in", fmt.Sprintf("iif eth0 numgen random mod 100 < %d", percent)}))
		}
		return fmt.Sprintf("%d %% of all packets are lost", percent), r.heal
	}},
	{name: "etcd-member", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.cluster.nodes[random.Intn(3)]
		r.etcd(n).end(syscall.SIGKILL)
		return "kill -9 of the member of etcd at " + n.name, r.etcd(n).run
	}},
	{name: "etcd-quorum", begin: func(r *run, random *rand.Rand) (string, func() error) {
		stays := random.Intn(3)
		for at, n := range r.cluster.nodes {
			if at != stays {
				r.etcd(n).end(syscall.SIGKILL)
			}
		}
		return fmt.Sprintf("kill -9 of two members of etcd, n%d has the last one", stays+1), func() error {
			for _, n := range r.cluster.nodes {
				if err := r.etcd(n).run(); err != nil {
					return err
				}
			}
			return nil
		}
	}},
	{name: "clock", needs: func(r *run) bool { return r.plan.hasClocks }, begin: func(r *run, random *rand.Rand) (string, func() error) {
		n, seconds := r.victim(random), []int{-3000, -20, 20, 3000}[random.Intn(4)]
		n.setClock(seconds)
		return fmt.Sprintf("the wall clock of %s jumps by %+d s", n.name, seconds), func() error { n.setClock(0); return nil }
	}},
	{name: "disk", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.victim(random)
		empty, err := fill(n.folder)
		r.must(err)
		return "no room on the disk of " + n.name, func() error { empty(); return nil }
	}},
	{name: "etcd-disk", begin: func(r *run, random *rand.Rand) (string, func() error) {
		n := r.cluster.nodes[random.Intn(3)]
		empty, err := fill(filepath.Join(n.folder, "etcd"))
		r.must(err)
		return "no room on etcd's disk at " + n.name, func() error { empty(); return nil }
	}},
}

// A phase is what happens in a cluster while a fault begins, beside the clients.
type phase struct {
	name  string
	needs func(*run) bool
	// begin returns when a fault may begin, and what goes on then. The returned function waits for its end.
	begin func(*run, *rand.Rand) func() error
	// Whether it ends a process that keeps data.
	endsData bool
}

// phases is the list from which a run draws. A new one needs an entry here.
var phases = []phase{
	{name: "load", begin: func(r *run, random *rand.Rand) func() error {
		return func() error { return nil }
	}},
	{name: "populate", begin: func(r *run, random *rand.Rand) func() error {
		done := make(chan struct{})
		go func() { defer close(done); r.populate() }()
		return func() error { <-done; return nil }
	}},
	// A node whose copies have nothing left takes them from their primaries.
	{name: "full-synchronisation", endsData: true, needs: func(r *run) bool { return !hasPersistence(r) },
		begin: func(r *run, random *rand.Rand) func() error {
			r.populate()
			r.must(r.staysInSync())
			n := r.cluster.nodes[random.Intn(2)]
			n.server.end(syscall.SIGKILL)
			// The others name primaries before it is back.
			time.Sleep(time.Duration(random.Intn(4000)) * time.Millisecond)
			r.must(n.server.run())
			r.lost = n
			return func() error { r.lost = nil; return nil }
		}},
	// Primaries hand over, one after the other. What a fault prevents stays undone.
	{name: "switchover", needs: func(r *run) bool { return r.plan.canMove }, begin: func(r *run, random *rand.Rand) func() error {
		asked, done := r.cluster.nodes[random.Intn(2)], make(chan struct{})
		go func() {
			defer close(done)
			r.cluster.operator(asked, "database", "switchover", database, "--insecure")
		}()
		return func() error { <-done; return nil }
	}},
	{name: "drain", needs: func(r *run) bool { return r.plan.canMove }, begin: func(r *run, random *rand.Rand) func() error {
		asked, drained, done := r.cluster.nodes[random.Intn(2)], r.cluster.nodes[random.Intn(2)], make(chan struct{})
		go func() {
			defer close(done)
			r.cluster.operator(asked, "cluster", "drain", drained.name, "--insecure")
		}()
		return func() error {
			<-done
			var last error
			within(patience, func() bool {
				_, last = r.cluster.operator(asked, "cluster", "undrain", drained.name, "--insecure")
				// The node that was asked to drain it may have been killed before it knew.
				if last != nil && strings.Contains(last.Error(), "is not drained") {
					last = nil
				}
				return last == nil
			})
			return last
		}
	}},
}
