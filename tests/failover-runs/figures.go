package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"syscall"
	"time"
)

// Owns the figures of failover: for how long a client that uses the other node gets no write acknowledged, and how long a primary that is
// cut off goes on to answer. Never judges what the replies say.

type figures struct {
	// From the last acknowledged write before to the first one after, in seconds.
	ProcessKilled []float64 `json:"process_killed"`
	NodeLost      []float64 `json:"node_lost"`
	LeaderLost    []float64 `json:"node_lost_with_etcd_leader"`
	// From the cut to the last reply that a client of the cut primary gets, in seconds.
	Isolated []float64 `json:"isolated_primary_answers"`
	// The largest resident size of a process that was killed.
	ResidentBytes uint64 `json:"resident_bytes"`
}

// measure repeats each fault so many times, and writes the figures to standard output as JSON. What it does is told on standard error.
func measure(flintkv, folder string, count int, fillMB int) error {
	megabytes := fmt.Sprintf("%dmb", 8*fillMB+400)
	w := wishes{folder: folder, dataMB: 3000, etcdMB: 300}
	w.create = []string{"--shards", fmt.Sprint(shards), "--replicas", "1", "--replication", "sync", "--memory-limit", megabytes,
		"--ram-limit", megabytes, "--persistence", "none"}
	c, err := begin(flintkv, w)
	if err != nil {
		return err
	}
	m := &measured{cluster: c}
	if err := m.fill(fillMB); err != nil {
		return err
	}
	for number := 0; number < count; number++ {
		for _, one := range []struct {
			what  string
			into  *[]float64
			fault func(victim *node) (float64, error)
		}{
			{"process killed and started again", &m.ProcessKilled, m.killed},
			{"node lost", &m.NodeLost, m.lost},
			{"node lost with etcd's leader", &m.LeaderLost, m.lostWithLeader},
			{"primary cut off, its last reply", &m.Isolated, m.isolated},
		} {
			if err := c.isInSync(); err != nil {
				return err
			}
			primaries := c.primaries()
			if len(primaries) != shards || primaries[0] == nil {
				return fmt.Errorf("the primaries are not known: %v", primaries)
			}
			took, err := one.fault(primaries[0])
			if err != nil {
				return fmt.Errorf("%s: %w", one.what, err)
			}
			*one.into = append(*one.into, took)
			fmt.Fprintf(os.Stderr, "   %d of %d, %s: %.2f s\n", number+1, count, one.what, took)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(m.figures)
}

type measured struct {
	figures
	cluster *cluster
}

// fill writes so many megabytes.
func (m *measured) fill(megabytes int) error {
	conn, err := m.cluster.connect(0)
	if err != nil {
		return err
	}
	defer conn.close()
	value := strings.Repeat("x", 1000)
	for number := 0; number < megabytes*1000; number += 100 {
		var sent []byte
		for at := number; at < number+100; at++ {
			sent = encode(sent, "SET", fmt.Sprintf("filler:%d", at), value)
		}
		if said, err := conn.send(sent, 100); err != nil || said != "OK" {
			return fmt.Errorf("filling: %v %v", said, err)
		}
	}
	return nil
}

// keyOfFirstShard is a key of the first shard.
func keyOfFirstShard() string {
	for number := 0; ; number++ {
		if key := fmt.Sprint(number); slot(key)*shards/16384 == 0 {
			return key
		}
	}
}

// writing is a client that writes through a node, one command after the other. It returns the longest silence from the fault on, when writes
// have been acknowledged for a while again.
func (m *measured) writing(through int, fault func() error) (float64, error) {
	key := keyOfFirstShard()
	var conn *connection
	defer func() { conn.close() }()
	write := func() bool {
		var err error
		if conn == nil {
			if conn, err = m.cluster.connect(through); err != nil {
				return false
			}
		}
		said, err := conn.call([]string{"SET", key, "value"})
		if err != nil {
			conn.close()
			conn = nil
		}
		return said == "OK"
	}
	if !within(patience, write) {
		return 0, fmt.Errorf("no write is acknowledged before the fault")
	}
	failed, begins := make(chan error, 1), time.Now().Add(time.Second+time.Duration(rand.Intn(1000))*time.Millisecond)
	// At a random moment between two heartbeats.
	timer := time.AfterFunc(time.Until(begins), func() { failed <- fault() })
	defer timer.Stop()
	const (
		// A silence that is no failover.
		usual = 200 * time.Millisecond
		// How long a fault may go unnoticed.
		unnoticed = 12 * time.Second
		settled   = 2 * time.Second
	)
	last, longest := time.Now(), time.Duration(0)
	var ended time.Time
	for deadline := time.Now().Add(patience * time.Second); time.Now().Before(deadline); {
		select {
		case err := <-failed:
			if err != nil {
				return 0, err
			}
		default:
		}
		if !write() {
			time.Sleep(time.Millisecond)
			continue
		}
		now := time.Now()
		// A command may have been on its way when the fault began.
		if now.After(begins) && now.Sub(last) > longest {
			longest, ended = now.Sub(last), now
		}
		last = now
		if longest > usual && now.Sub(ended) > settled || now.Sub(begins) > unnoticed {
			return longest.Seconds(), nil
		}
	}
	return 0, fmt.Errorf("no write is acknowledged after the fault")
}

func (m *measured) other(victim *node) int {
	if m.cluster.nodes[0] == victim {
		return 1
	}
	return 0
}

func (m *measured) killed(victim *node) (float64, error) {
	if size := residentBytes(victim.server.pid()); size > m.ResidentBytes {
		m.ResidentBytes = size
	}
	return m.writing(m.other(victim), func() error {
		victim.server.end(syscall.SIGKILL)
		return victim.server.run()
	})
}

// lost: the machine says nothing any more, not even that its connections have ended. It comes back when the measurement is over.
func (m *measured) lost(victim *node) (float64, error) {
	if err := m.leads(victim, false); err != nil {
		return 0, err
	}
	return m.loses(victim)
}

func (m *measured) lostWithLeader(victim *node) (float64, error) {
	if err := m.leads(victim, true); err != nil {
		return 0, err
	}
	return m.loses(victim)
}

func (m *measured) loses(victim *node) (float64, error) {
	took, err := m.writing(m.other(victim), func() error {
		return victim.drop([2]string{"in", "iif eth0"}, [2]string{"out", "oif eth0"})
	})
	victim.server.end(syscall.SIGKILL)
	victim.coordinator.end(syscall.SIGKILL)
	if healed := victim.healed(); err == nil {
		err = healed
	}
	if started := victim.run(); err == nil {
		err = started
	}
	return took, err
}

// isolated: a client of the primary's own node asks on while this node and all others hear nothing of each other.
func (m *measured) isolated(victim *node) (float64, error) {
	at := 1 - m.other(victim)
	conn, err := m.cluster.connect(at)
	if err != nil {
		return 0, err
	}
	defer conn.close()
	key, last := keyOfFirstShard(), time.Time{}
	ask := func() bool {
		said, err := conn.call([]string{"GET", key})
		if _, isRefusal := said.(refusal); err != nil || isRefusal {
			return false
		}
		last = time.Now()
		return true
	}
	for begun := time.Now(); time.Since(begun) < time.Second; {
		ask()
	}
	time.Sleep(time.Duration(rand.Intn(200)) * time.Millisecond)
	cut := time.Now()
	var rules [][2]string
	for _, other := range m.cluster.nodes {
		if other != victim {
			rules = append(rules, [2]string{"in", "ip saddr " + other.address}, [2]string{"out", "ip daddr " + other.address})
		}
	}
	if err := victim.drop(rules...); err != nil {
		return 0, err
	}
	for ask() {
	}
	took := last.Sub(cut).Seconds()
	return took, victim.healed()
}

// leads brings etcd's leadership to the node, or away from it: who leads stands still until another one does.
func (m *measured) leads(victim *node, wanted bool) error {
	var leader *node
	isRight := func() bool {
		leader = m.leader()
		if leader == nil {
			return false
		}
		if (leader == victim) == wanted {
			return true
		}
		m.pauseEtcd(leader)
		return false
	}
	if !within(patience, isRight) {
		return fmt.Errorf("etcd's leadership does not move to or from %s", victim.name)
	}
	return m.cluster.isInSync()
}

func (m *measured) pauseEtcd(n *node) {
	p := &n.coordinator
	if !n.isData {
		p = &n.server
	}
	for _, pid := range descendants(p.pid()) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) == "etcd" {
			syscall.Kill(pid, syscall.SIGSTOP)
			time.Sleep(2500 * time.Millisecond)
			syscall.Kill(pid, syscall.SIGCONT)
			time.Sleep(time.Second)
		}
	}
}

// leader is the node whose member of etcd leads. nil: nobody says so.
func (m *measured) leader() *node {
	var shown struct {
		Etcd struct {
			Members []struct {
				Name     string
				IsLeader bool `json:"is_leader"`
			}
		}
	}
	if m.cluster.ask(m.cluster.nodes[0], &shown, "cluster", "nodes") != nil {
		return nil
	}
	for _, member := range shown.Etcd.Members {
		if member.IsLeader {
			return m.cluster.named(member.Name)
		}
	}
	return nil
}

func residentBytes(pid int) uint64 {
	read, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, resident uint64
	fmt.Sscan(string(read), &size, &resident)
	return resident * uint64(os.Getpagesize())
}
