// Runs clusters of real processes under faults and judges what their clients have seen. README.md says how it is called.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The exit code of a run that cannot be made here.
const skipped = 3

func main() {
	flintkv := flag.String("flintkv", os.Getenv("FLINTKV"), "the binary")
	seed := flag.Int64("seed", 0, "of the first run; 0: a random one")
	count := flag.Int("runs", 0, "how many runs; 0: as many as there is time for, at least one")
	seconds := flag.Float64("seconds", 60, "no run begins later than this")
	var o options
	flag.StringVar(&o.replication, "replication", "", "sync or async; else it is drawn")
	flag.StringVar(&o.persistence, "persistence", "", "none, everysec or always; else it is drawn")
	flag.IntVar(&o.rounds, "rounds", 4, "faults, one after the other, in each run")
	names := flag.String("faults", "", "only these, separated by commas")
	phaseNames := flag.String("phases", "", "only these, separated by commas")
	wanted := flag.Bool("flagged", false, "the binary is broken on purpose: success is that a run finds replies that are wrong")
	kept := flag.String("keep", "", "the folder for the logs and histories of runs that find something")
	measures := flag.Int("figures", 0, "no runs: measure failovers so many times each")
	fillMB := flag.Int("fill", 300, "for figures: megabytes in the database")
	folder := flag.String("folder", "", "for a run: its folder")
	flag.Parse()
	o.faults, o.phases = split(*names), split(*phaseNames)

	if isInside() {
		if err := prepareInside(); err != nil {
			fmt.Println(err)
			os.Exit(skipped)
		}
		if *measures > 0 {
			if err := measure(*flintkv, *folder, *measures, *fillMB); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
		o.canMove = exec.Command(*flintkv, "cluster", "drain", "--help").Run() == nil
		p := draw(*seed, o)
		wrong := execute(*flintkv, *folder, p)
		for _, what := range wrong {
			fmt.Printf("WRONG, seed %d: %s\n", p.seed, what)
		}
		if len(wrong) > 0 {
			os.Exit(1)
		}
		return
	}
	if *flintkv == "" {
		fmt.Println("no binary: set FLINTKV")
		os.Exit(1)
	}
	if *seed == 0 {
		*seed = rand.New(rand.NewSource(time.Now().UnixNano())).Int63n(1 << 40)
	}
	if *measures > 0 {
		os.Exit(one(0, *flintkv, *kept))
	}
	begun, found, made := time.Now(), 0, 0
	for ; *count == 0 && (made == 0 || time.Since(begun).Seconds() < *seconds) || made < *count; made++ {
		code := one(*seed+int64(made), *flintkv, *kept)
		if code == skipped {
			os.Exit(skipped)
		}
		if code != 0 {
			if found++; *wanted {
				made++
				break
			}
		}
	}
	fmt.Printf("%d runs in %.0f s, %d have found something\n", made, time.Since(begun).Seconds(), found)
	if (found > 0) != *wanted {
		os.Exit(1)
	}
}

func split(names string) []string {
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

// one is a run in namespaces of its own. It returns the run's exit code.
func one(seed int64, flintkv, kept string) int {
	folder, err := os.MkdirTemp("", "failover-runs-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	var given []string
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "seed" && f.Name != "flintkv" {
			given = append(given, "-"+f.Name+"="+f.Value.String())
		}
	})
	command := isolate(append(given, "-seed", fmt.Sprint(seed), "-flintkv", flintkv, "-folder", folder)...)
	err = command.Run()
	if err == nil {
		return 0
	}
	exit, isExit := err.(*exec.ExitError)
	if !isExit {
		fmt.Println("namespaces cannot be made here:", err)
		return skipped
	}
	if exit.ExitCode() != skipped && kept != "" {
		save(folder, filepath.Join(kept, fmt.Sprint(seed)))
	}
	return exit.ExitCode()
}

// save copies logs and histories.
func save(folder, to string) {
	if os.MkdirAll(to, 0o755) != nil {
		return
	}
	for _, pattern := range []string{"*.log", "*.history"} {
		names, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, name := range names {
			from, err := os.Open(name)
			if err != nil {
				continue
			}
			if file, err := os.Create(filepath.Join(to, filepath.Base(name))); err == nil {
				io.Copy(file, from)
				file.Close()
			}
			from.Close()
		}
	}
	fmt.Println("logs and histories:", to)
}
