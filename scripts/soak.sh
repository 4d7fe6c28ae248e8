#!/usr/bin/env bash
# Long runs of random and fault tests, optimised and with all assertions, and long fuzz runs. Each run starts with a
# different seed. A failing seed is printed, and FLINTKV_SEED=N replays it. usage: scripts/soak.sh [SECONDS, 300
# [CRASHES, 1000000]]
#   FAILOVER_SECONDS=14400 runs clusters under faults for hours instead of SECONDS
#   SECONDS for each random test and for each fuzz target; CRASHES of the simulated device, at least: all but one in 200 are the
#   journal's, since each of the store's comes after thousands of commands.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-300}" crashes="${2:-1000000}"

scripts/test-deps.sh || exit 1
. scripts/steps.sh
export FLINTKV_SEED="${FLINTKV_SEED:-random}" FLINTKV_TEST_SECONDS="$seconds"
export FLINTKV="$(realpath -m "${CARGO_TARGET_DIR:-target}")/soak/flintkv"

step "cargo build" cargo build --quiet --profile soak -p flintkv
FLINTKV_TEST_SECONDS=0 PROPTEST_CASES=10000 cargo_tests "property tests, with new cases" --profile soak --workspace \
    --lib --test records --test wire --test files --test link
cargo_tests "the store over a simulated device" --profile soak -p flintkv-store --test model --test parts --test inner --test force_demote
FLINTKV_CRASHES=$(((crashes * 199 / 200 + 1) / 2)) cargo_tests "the journal over a simulated device that crashes" \
    --profile soak -p flintkv-journal --test crashes -- --nocapture
FLINTKV_CRASHES=$(((crashes + 199) / 200)) cargo_tests "the store over a simulated device that crashes" \
    --profile soak -p flintkv-store --test checkpoint -- --nocapture
cat "$scratch"/tmp.* | awk '/ crashes were simulated/ { for (at = 2; at <= NF; at++) if ($at == "crashes") sum += $(at - 1) }
    END { printf "==> %d crashes were simulated in all\n", sum }'
FLINTKV_CRASHES=$((crashes * 3 / 10)) cargo_tests "a simulated primary and its replica, a hundred thousand histories" \
    --profile soak -p flintkv-engine --test commands -- pair:: --nocapture
cargo_tests "a follower of etcd's twin, under faults" --profile soak -p flintkv-coord --test coord -- random::
FLINTKV_HISTORIES=$((crashes * 10)) cargo_tests "a shard with replicas, a million histories" \
    --profile soak -p flintkv-cluster --test failover -- nothing --nocapture
cargo_tests "commands beside redis-server" --profile soak -p flintkv-engine --test commands -- differential
cargo_tests "effects that repeat random runs, by one connection" --profile soak -p flintkv-engine --test commands -- proof::
cargo_tests "effects that repeat random runs, by several" --profile soak -p flintkv-node --test node -- effects::
cargo_tests "nodes that are killed under load, and start again" --profile soak -p flintkv-node --test node -- \
    persist::what_was_acknowledged
FLINTKV_CYCLES=1000 cargo_tests "a thousand rounds of the life of a copy" --profile soak -p flintkv-node --test node -- copies:: --nocapture
cargo_tests "nodes whose disk loses its power under load" --profile soak -p flintkv-node --test node -- \
    power:: --include-ignored --nocapture --test-threads 1
cargo_tests "the node: differential, concurrency, faults, limits" --profile soak -p flintkv-tests \
    --test full_disk --test differential --test concurrency --test faults --test hostile --test resident
cargo_tests "a cluster whose connections are cut" --profile soak -p flintkv-tests --test cluster_faults -- --nocapture
cargo_tests "a thousand handovers of a primary" --profile soak -p flintkv-tests --test handovers -- --include-ignored --nocapture
step "clusters under faults" tests/failover-runs/run.sh "${FAILOVER_SECONDS:-$seconds}"
step "a build without serving leases is found out" tests/failover-runs/without-leases.sh
cargo_tests "a cluster whose authority is replaced" --profile soak -p flintkv-tests --test certificates -- --include-ignored --nocapture
FLINTKV_COMMANDS=100000 cargo_tests "a cluster beside one node" --profile soak -p flintkv-tests --test cluster -- random_commands --nocapture
cargo_tests "a filled node takes what flintkv plan says" --profile soak -p flintkv-tests --test plan -- --include-ignored --nocapture
step "the console with a million keys" tests/console/run.sh million
step "fuzz" scripts/fuzz.sh "$seconds"
sum_up
