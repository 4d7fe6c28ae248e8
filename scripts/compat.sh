#!/usr/bin/env bash
# Long compatibility tests of FlintKV: every client library in every form, comparisons of replies to millions of random
# commands with redis-server, Redis's own tools and tests, and Valkey as a peer. usage: scripts/compat.sh [SECONDS, 120]
# for each random comparison
set -uo pipefail
cd "$(dirname "$0")/.."

scripts/test-deps.sh --all || exit 1
. scripts/steps.sh
export FLINTKV_TEST_SECONDS="${1:-120}"
export FLINTKV="$(realpath -m "${CARGO_TARGET_DIR:-target}")/soak/flintkv"

step "cargo build" cargo build --quiet --profile soak -p flintkv --bin flintkv --example proxied
step "cargo build" cargo build --quiet --profile soak -p flintkv-tests --example cluster
step tests/clients/run.sh tests/clients/run.sh
step "clients of a cluster" env CLIENTS_FORMS="cluster shard" CLUSTER="$(dirname "$FLINTKV")/examples/cluster" \
    tests/clients/run.sh
cargo_tests "commands beside redis-server" --profile soak -p flintkv-engine --test commands -- differential
cargo_tests "the node beside redis-server" --profile soak -p flintkv-tests --test differential --test redis_tools
step "Redis's own tests" tests/redis/run.sh --all
step "Redis's own tests through a proxy" env REDIS_FORMS=proxy PROXIED="$(dirname "$FLINTKV")/examples/proxied" tests/redis/run.sh --all
step "Redis's own tests of replication" tests/redis/run.sh --replication
step "Valkey instead of Redis" scripts/valkey.sh
step tests/monitoring/run.sh tests/monitoring/run.sh
step tests/tools/run.sh tests/tools/run.sh
sum_up
