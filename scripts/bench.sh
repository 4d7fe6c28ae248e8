#!/usr/bin/env bash
# Prints all published figures with their targets. Builds the binary as it is shipped (profile dist) and the program that compares it with Debian's redis-server on
# this machine. Takes about 90 minutes, 50 of them for group failover, and 20 GB of free flash; QUICK=1 about 8 minutes. BIG=1 adds the restart of 100
# million keys (group durability): 10 minutes and 32 GB more. GROUP: hot, cold, flash, endurance, keys, commands, replication,
# cluster, failover, durability, scenarios; docs/scenarios.md says what each measures. FAILOVERS=50 is how often group failover repeats its
# faults, a minute each time. usage: scripts/bench.sh [--quick | --big] [--only GROUP]
# [--json FILE] [--markdown FILE] [--dir DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh cargo cc redis-server etcd fio
# Without it, group failover says that it cannot be measured.
FAILOVER_RUNS="$(tests/failover-runs/build.sh || true)"
if [ -n "$FAILOVER_RUNS" ]; then export FAILOVER_RUNS; else unset FAILOVER_RUNS; fi
cargo build --profile dist -p flintkv -p flintkv-suite
suite="$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist/bench-suite"

args=("$@")
if [ "${QUICK:-}" = 1 ]; then args+=(--quick); fi
if [ "${BIG:-}" = 1 ]; then args+=(--big); fi
exec "$suite" "${args[@]}"
