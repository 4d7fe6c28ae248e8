package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Owns the namespaces of a run. A run is a process of its own that is process 1 of a PID namespace: when it ends, however it ends, the
// kernel ends every process that it has started, and its network and its mounts are gone too. So runs beside each other share nothing.

const (
	cloneNewTime = 0x80
	clientHost   = "10.9.0.254"
	newChains    = "add table inet faults; add chain inet faults in { type filter hook input priority 0; };" +
		" add chain inet faults out { type filter hook output priority 0; }"
	// What the first process of a run has in its environment.
	insideVariable = "FAILOVER_RUNS_INSIDE"
)

// isolate starts this program again, in namespaces of its own.
func isolate(args ...string) *exec.Cmd {
	command := exec.Command("/proc/self/exe", args...)
	command.Env = append(os.Environ(), insideVariable+"=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	attributes := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	command.SysProcAttr = attributes
	return command
}

func isInside() bool {
	return os.Getenv(insideVariable) != ""
}

// prepareInside makes the mounts of this run private, and a bridge for its nodes.
func prepareInside() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts cannot be made private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc cannot be mounted: %w", err)
	}
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		return fmt.Errorf("this kernel has no time namespaces: %w", err)
	}
	return all(
		// Not every kernel has what drops packets.
		[]string{"nft", newChains},
		[]string{"nft", "add rule inet faults in numgen random mod 100 < 1 drop"},
		[]string{"nft", "delete table inet faults"},
		[]string{"ip", "link", "set", "lo", "up"},
		[]string{"ip", "link", "add", "nodes", "type", "bridge"},
		[]string{"ip", "address", "add", clientHost + "/24", "dev", "nodes"},
		[]string{"ip", "link", "set", "nodes", "up"},
	)
}

// all runs commands until one fails.
func all(commands ...[]string) error {
	for _, words := range commands {
		if said, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, said)
		}
	}
	return nil
}

// A host is what one machine has of its own: a network namespace that is connected to the bridge, clocks that count from another start, and
// a disk for each purpose.
type host struct {
	address string
	holder  *exec.Cmd
}

// newHost makes the host. Its clocks that count from the start of the machine are ahead by so many seconds.
func newHost(number int, aheadS int) (*host, error) {
	h := &host{address: fmt.Sprintf("10.9.0.%d", number)}
	ahead := strconv.Itoa(aheadS)
	// A time namespace holds for the children of the process that makes it.
	h.holder = exec.Command("unshare", "--net", "--time", "--boottime", ahead, "--monotonic", ahead, "--fork", "sleep", "infinity")
	if err := h.holder.Start(); err != nil {
		return nil, err
	}
	var pid int
	if !within(10, func() bool {
		pid = onlyChild(h.holder.Process.Pid)
		// It has its namespaces when it is another program.
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return pid != 0 && strings.TrimSpace(string(name)) == "sleep"
	}) {
		return nil, errors.New("unshare has not started: this kernel may lack time namespaces")
	}
	h.holder.Process, _ = os.FindProcess(pid)
	inner, outer := "eth0", fmt.Sprintf("node%d", number)
	if err := all(
		[]string{"ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", strconv.Itoa(pid)},
		[]string{"ip", "link", "set", outer, "master", "nodes", "up"},
	); err != nil {
		return nil, err
	}
	return h, all(
		h.inside("ip", "link", "set", "lo", "up"),
		h.inside("ip", "address", "add", h.address+"/24", "dev", inner),
		h.inside("ip", "link", "set", inner, "up"),
		h.inside("nft", newChains),
	)
}

// inside is the command, run on this host. The process stays the one that is started.
func (h *host) inside(words ...string) []string {
	pid := strconv.Itoa(h.holder.Process.Pid)
	return append([]string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--time=/proc/" + pid + "/ns/time"}, words...)
}

// drop adds rules at one moment, each of a chain, "in" or "out", and a condition.
func (h *host) drop(rules ...[2]string) error {
	var text strings.Builder
	for _, rule := range rules {
		fmt.Fprintf(&text, "add rule inet faults %s %s drop; ", rule[0], rule[1])
	}
	return all(h.inside("nft", text.String()))
}

// healed removes all rules.
func (h *host) healed() error {
	return all(h.inside("nft", "flush table inet faults"))
}

// disk mounts a file system of this size, in RAM.
func disk(path string, megabytes int) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return syscall.Mount("none", path, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes))
}

// fill leaves no room on the file system of this folder. The returned function makes room again.
func fill(path string) (func(), error) {
	name := filepath.Join(path, "filler")
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for size := len(block); size >= 512; {
		if _, err = file.Write(block[:size]); err != nil {
			size /= 2
		}
	}
	return func() { os.Remove(name) }, nil
}

// onlyChild is 0 if there is none.
func onlyChild(pid int) int {
	read, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	child, _ := strconv.Atoi(strings.TrimSpace(string(read)))
	return child
}

// descendants are this process and everything that it has started.
func descendants(pid int) []int {
	found := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		read, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(read)) {
			if child, err := strconv.Atoi(word); err == nil {
				found = append(found, descendants(child)...)
			}
		}
	}
	return found
}
