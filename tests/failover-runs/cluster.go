package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Owns the processes of three nodes, each on a host of its own: two with data, and one that only votes. Each has a member of etcd.

const (
	password = "a-password-of-tests"
	database = "orders"
	// How long anything may take that is not under a fault. The machine may be busy.
	patience = 180
)

// within asks until the answer is yes, for so many seconds at most.
func within(seconds float64, is func() bool) bool {
	for deadline := time.Now().Add(time.Duration(seconds * float64(time.Second))); ; {
		if is() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// A process that is started again when the run wants it. It may end only when the run ends it.
type process struct {
	start func() *exec.Cmd
	mutex sync.Mutex
	now   *exec.Cmd
	ended chan struct{}
	// Why it has ended although nobody has ended it.
	trouble string
}

func (p *process) run() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.now != nil {
		return nil
	}
	command, ended := p.start(), make(chan struct{})
	if err := command.Start(); err != nil {
		return err
	}
	p.now, p.ended = command, ended
	go func() {
		err := command.Wait()
		p.mutex.Lock()
		if p.now == command {
			p.trouble = fmt.Sprintf("%s has ended by itself: %v", strings.Join(command.Args, " "), err)
		}
		p.mutex.Unlock()
		close(ended)
	}()
	return nil
}

// end sends the signal, and returns when the process is gone.
func (p *process) end(signal syscall.Signal) {
	p.mutex.Lock()
	command, ended := p.now, p.ended
	p.now = nil
	p.mutex.Unlock()
	if command != nil {
		command.Process.Signal(signal)
		<-ended
	}
}

// pid is 0 while it does not run.
func (p *process) pid() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.now == nil {
		return 0
	}
	return p.now.Process.Pid
}

// tell sends the signal to this process and all that it has started.
func (p *process) tell(signal syscall.Signal) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.now != nil {
		for _, pid := range descendants(p.now.Process.Pid) {
			syscall.Kill(pid, signal)
		}
	}
}

type node struct {
	*host
	name   string
	isData bool
	folder string
	// The file from which libfaketime takes the shift of the wall clock. Empty: the clock is right.
	clock string
	// `flintkv server`, or `flintkv quorum`, which also runs the member of etcd.
	server process
	// `flintkv coordinator` of a node with data.
	coordinator process
}

type cluster struct {
	flintkv string
	nodes   []*node
	port    int
}

// What a run wants of its cluster.
type wishes struct {
	folder string
	// Sizes of the disks, in megabytes.
	dataMB, etcdMB int
	// By how many seconds the clocks of each node that count from the start of the machine are ahead.
	aheadS [3]int
	// Whether the wall clocks of nodes can be set.
	hasClocks bool
	create    []string
}

func newNode(flintkv string, number int, wishes wishes) (*node, error) {
	h, err := newHost(number, wishes.aheadS[number-1])
	if err != nil {
		return nil, err
	}
	n := &node{host: h, name: fmt.Sprintf("n%d", number), isData: number < 3}
	n.folder = filepath.Join(wishes.folder, n.name)
	etcd := filepath.Join(n.folder, "etcd")
	if err := disk(n.folder, wishes.dataMB); err != nil {
		return nil, err
	}
	if err := disk(etcd, wishes.etcdMB); err != nil {
		return nil, err
	}
	if wishes.hasClocks && n.isData {
		n.clock = filepath.Join(wishes.folder, n.name+".clock")
		n.setClock(0)
	}
	state := fmt.Sprintf("state-dir %s/state\netcd-path %s/data\n", n.folder, etcd)
	if n.isData {
		state += fmt.Sprintf("dir %[1]s\nport 0\nunixsocket %[1]s/default.sock\nbind %[2]s\nconsole-bind %[2]s\nconsole-metrics-open yes\n"+
			"console-password %[3]s\nio-threads 2\nflash-path %[1]s/flash\nmemory-limit 64mb\nram-limit 48mb\nappendonly no\n"+
			// A comparison writes to the stream, and reads at a primary that is cut off wait for what was written: not all the time.
			"repl-check-interval 12\n", n.folder, n.address, password)
	}
	conf := filepath.Join(n.folder, "flintkv.conf")
	if err := os.WriteFile(conf, []byte(state), 0o644); err != nil {
		return nil, err
	}
	program := func(subcommand string) func() *exec.Cmd {
		return func() *exec.Cmd {
			words := n.inside(flintkv, subcommand, conf)
			command := exec.Command(words[0], words[1:]...)
			command.Dir, command.Env = n.folder, n.environment()
			log, _ := os.OpenFile(filepath.Join(wishes.folder, n.name+"."+subcommand+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			command.Stdout, command.Stderr = log, log
			return command
		}
	}
	if n.isData {
		n.server.start, n.coordinator.start = program("server"), program("coordinator")
	} else {
		n.server.start = program("quorum")
	}
	return n, n.run()
}

// run starts what does not run.
func (n *node) run() error {
	if err := n.server.run(); err != nil || !n.isData {
		return err
	}
	return n.coordinator.run()
}

func (n *node) environment() []string {
	if n.clock == "" {
		return os.Environ()
	}
	return append(os.Environ(), "LD_PRELOAD="+fakeTime(), "FAKETIME_TIMESTAMP_FILE="+n.clock, "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_NO_CACHE=1")
}

// setClock shifts the wall clock of the node's processes, also of those that run. The clocks that leases count by stay as they are.
func (n *node) setClock(seconds int) {
	next := n.clock + ".next"
	if os.WriteFile(next, []byte(fmt.Sprintf("%+d", seconds)), 0o644) == nil {
		os.Rename(next, n.clock)
	}
}

// fakeTime is the library of Debian's package. Empty: it is not there.
func fakeTime() string {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// operator is the command line of an operator who is logged in on this node's host.
func (c *cluster) operator(n *node, words ...string) (string, error) {
	entered := n.inside(append([]string{c.flintkv}, words...)...)
	command := exec.Command(entered[0], entered[1:]...)
	command.Env = append(os.Environ(), "FLINTKV_URL=http://"+n.address+":8379", "FLINTKV_USER=admin", "FLINTKV_PASSWORD="+password)
	var out, errors bytes.Buffer
	command.Stdout, command.Stderr = &out, &errors
	timer := time.AfterFunc(30*time.Second, func() { command.Process.Kill() })
	defer timer.Stop()
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, errors.String())
	}
	return out.String(), nil
}

// ask is the same, for what is printed as JSON. The network is the run's own, so passwords need no cipher.
func (c *cluster) ask(n *node, into interface{}, words ...string) error {
	said, err := c.operator(n, append(words, "--json", "--insecure")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(said), into)
}

// begin makes a cluster with one database.
func begin(flintkv string, wishes wishes) (*cluster, error) {
	c := &cluster{flintkv: flintkv}
	for number := 1; number <= 3; number++ {
		n, err := newNode(flintkv, number, wishes)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
		first, conf, where := c.nodes[0], filepath.Join(n.folder, "flintkv.conf"), []string{"--address", n.address, "--name", n.name, "--zone", "zone-" + n.name}

		words := append([]string{"cluster", "init", "runs", "--conf", conf}, where...)
		var last error
		if number > 1 {
			var made struct{ Token string }
			if !within(patience, func() bool { last = c.ask(first, &made, "cluster", "token"); return last == nil }) {
				return c, last
			}
			role := map[bool]string{true: "data", false: "quorum"}[n.isData]
			words = append([]string{"cluster", "join", first.address, "--token", made.Token, "--role", role, "--conf", conf}, where...)
		}
		if !within(patience, func() bool { _, last = c.operator(n, words...); return last == nil }) {
			return c, last
		}
	}
	if !within(patience, c.isComplete) {
		return c, fmt.Errorf("the cluster is not complete after %d s", patience)
	}
	var made struct{ Definition struct{ Port int } }
	words := append([]string{"database", "create", database, "--password=" + password}, wishes.create...)
	if err := c.ask(c.nodes[0], &made, words...); err != nil {
		return c, err
	}
	c.port = made.Definition.Port
	return c, c.isInSync()
}

// isComplete: all nodes run, have said what room they have, and have a member of etcd that votes.
func (c *cluster) isComplete() bool {
	var shown struct {
		Nodes []struct {
			Role     string
			IsLive   bool   `json:"is_live"`
			RamBytes uint64 `json:"ram_bytes"`
		}
		Etcd struct {
			Members []struct {
				IsLearner bool `json:"is_learner"`
				Trouble   *string
			}
		}
	}
	if c.ask(c.nodes[0], &shown, "cluster", "nodes") != nil || len(shown.Nodes) != 3 || len(shown.Etcd.Members) != 3 {
		return false
	}
	for _, member := range shown.Etcd.Members {
		if member.IsLearner || member.Trouble != nil {
			return false
		}
	}
	for _, n := range shown.Nodes {
		if !n.IsLive || n.Role == "data" && n.RamBytes == 0 {
			return false
		}
	}
	return true
}

type shard struct {
	Node    string
	Trouble *string
	Copies  []struct {
		Node     string
		IsInSync bool `json:"is_in_sync"`
		Offset   *uint64
	}
}

func (c *cluster) shards(n *node) (shown []shard, err error) {
	err = c.ask(n, &shown, "database", "shards", database)
	return shown, err
}

// primaries are the nodes that serve each shard, as anybody says who answers.
func (c *cluster) primaries() []*node {
	for _, asked := range c.nodes[:2] {
		shown, err := c.shards(asked)
		if err != nil || len(shown) == 0 {
			continue
		}
		found := make([]*node, len(shown))
		for at, shard := range shown {
			found[at] = c.named(shard.Node)
		}
		return found
	}
	return nil
}

func (c *cluster) named(name string) *node {
	for _, n := range c.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// isInSync waits until both nodes say that every shard has both copies in sync and is served.
func (c *cluster) isInSync() error {
	var last string
	isGood := func(n *node) bool {
		shown, err := c.shards(n)
		last = fmt.Sprintf("%s says %v %+v", n.name, err, shown)
		if err != nil || len(shown) == 0 {
			return false
		}
		for _, shard := range shown {
			inSync := 0
			for _, copy := range shard.Copies {
				if copy.IsInSync && copy.Offset != nil {
					inSync++
				}
			}
			if shard.Trouble != nil {
				last += ", trouble: " + *shard.Trouble
			}
			if inSync != 2 || shard.Trouble != nil {
				return false
			}
		}
		return true
	}
	if within(patience, func() bool { return isGood(c.nodes[0]) && isGood(c.nodes[1]) }) {
		return nil
	}
	return fmt.Errorf("the copies are not in sync %d s after the last fault: %s", patience, last)
}

// trouble is what the processes have done that they must not do.
func (c *cluster) trouble() (found []string) {
	for _, n := range c.nodes {
		for _, p := range []*process{&n.server, &n.coordinator} {
			p.mutex.Lock()
			if p.trouble != "" {
				found = append(found, n.name+": "+p.trouble)
			}
			p.mutex.Unlock()
		}
	}
	return found
}

// connect is a client of the database, at this node.
func (c *cluster) connect(at int) (*connection, error) {
	conn, err := dial(fmt.Sprintf("%s:%d", c.nodes[at].address, c.port))
	if err != nil {
		return nil, err
	}
	if said, err := conn.call([]string{"AUTH", password}); err != nil || said != "OK" {
		conn.close()
		return nil, fmt.Errorf("AUTH: %v %v", said, err)
	}
	return conn, nil
}

// --- the digests of the copies ---

type compared struct{ done, differences, givenUp int }

var sample = regexp.MustCompile(`(?m)^flintkv_replication_(checks|differences|checks_given_up)_total\{(.*)\} (\d+)$`)
var ofCopy = regexp.MustCompile(`database="` + database + `",shard="([^"]*)"`)

// comparisons are those of each copy, by node and copy.
func (c *cluster) comparisons() (map[string]compared, error) {
	found := map[string]compared{}
	for _, n := range c.nodes[:2] {
		client := http.Client{Timeout: 5 * time.Second}
		answer, err := client.Get("http://" + n.address + ":8379/metrics")
		if err != nil {
			return nil, err
		}
		page, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return nil, err
		}
		for _, match := range sample.FindAllStringSubmatch(string(page), -1) {
			of := ofCopy.FindStringSubmatch(match[2])
			if of == nil {
				continue
			}
			key := "shard " + of[1] + " at " + n.name
			entry := found[key]
			count, _ := strconv.Atoi(match[3])
			switch match[1] {
			case "checks":
				entry.done = count
			case "differences":
				entry.differences = count
			default:
				entry.givenUp = count
			}
			found[key] = entry
		}
	}
	return found, nil
}
