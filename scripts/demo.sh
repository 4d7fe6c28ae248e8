#!/usr/bin/env bash
# The product's main job, at 1/150 of the published size, in a few minutes.
# One node: builds the binary, starts a node on loopback with flash in a scratch directory, and runs the Redis-on-Flash benchmark against
# it over the network. Then the dataset is made durable, the node is killed and started again, and the keys are counted.
# A cluster: demo-cluster.sh goes on with three nodes, if etcd is there or can be installed.
# On a terminal the last of them, with its web console, runs until Enter or Ctrl-C. The script always stops what it has started.
# usage: scripts/demo.sh [options of flintkv scenario]   SCALE=1/150
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/demo-common.sh
scale="${SCALE:-1/150}"
options=(--dry-time 15 --test-time 10)
if [ "$#" -gt 0 ]; then options=("$@"); fi

scripts/need.sh cargo cc
cargo build --release -p flintkv
flintkv="$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/flintkv"
cluster=yes
have_etcd || cluster=no

node=""
load=""
scratch=""
stop_all() {
    if [ -n "$load" ]; then kill -TERM "$load" 2>/dev/null || true; fi
    load=""
    if [ -n "$node" ] && kill -TERM "$node" 2>/dev/null; then
        for _ in $(seq 100); do
            kill -0 "$node" 2>/dev/null || break
            sleep 0.1
        done
        if kill -KILL "$node" 2>/dev/null; then
            echo "the node did not stop within 10 seconds and was killed" >&2
        fi
        wait "$node" 2>/dev/null || true
    fi
    node=""
}
finish() {
    local code=$?
    trap - EXIT INT TERM
    stop_all
    if [ -n "$scratch" ] && [ "$code" -ne 0 ] && [ "$code" -lt 128 ]; then tail -n 20 "$scratch/node.log" >&2 2>/dev/null || true; fi
    remove_scratch
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make_scratch

# Half of the published 100 GB was for replicas, so one node gets the other half. 30 % of it is RAM. All sizes have the scale of the keys.
memory_limit="$(scaled 50e9)"
mkdir "$scratch/flash"

begin_node() {
    "$flintkv" server --port "$1" --bind 127.0.0.1 --dir "$scratch" --logfile node.log \
        --console-port "$(($1 + 1))" --console-password "$password" \
        --memory-limit "$memory_limit" --ram-limit 30% --flash-path flash --appendonly "$2" &
    node=$!
}
ready() {
    [ "$(ask 127.0.0.1 "$1" PING)" = +PONG ]
}
port=""
for _ in 1 2 3 4 5; do
    try=$((20000 + RANDOM % 20000))
    if taken 127.0.0.1 "$try" || taken 127.0.0.1 "$((try + 1))"; then continue; fi
    begin_node "$try" no
    for _ in $(seq 100); do
        if ready "$try"; then port="$try"; break 2; fi
        kill -0 "$node" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$node" 2>/dev/null || true
    wait "$node" 2>/dev/null || true
    node=""
done
[ -n "$port" ] || { echo "the node did not start" >&2; exit 1; }
echo "--- One node"
echo "node $node on 127.0.0.1:$port, memory limit $memory_limit bytes, 30% of it RAM, flash in $scratch/flash"
console="console: http://127.0.0.1:$((port + 1)), user admin, password $password"
echo "$console"

# Runs in the background, followed by a wait, because bash delays signals until a foreground command ends.
"$flintkv" scenario rof-replicated --scale "$scale" --host 127.0.0.1 --port "$port" --json "$scratch/node.json" "${options[@]}" &
load=$!
wait "$load"
load=""

echo
begun=$(date +%s.%N)
reply="$(ask 127.0.0.1 "$port" 'CONFIG SET appendonly yes')"
[ "$reply" = +OK ] || { echo "the dataset is not durable: $reply" >&2; exit 1; }
for n in $(seq 100); do ask 127.0.0.1 "$port" "SET demo:$n written-after-the-checkpoint" >/dev/null; done
keys="$(ask 127.0.0.1 "$port" DBSIZE)"
echo "appendonly yes: the dataset survives crashes from now on, after $(since "$begun"); ${keys#:} keys"
kill -KILL "$node"
wait "$node" 2>/dev/null || true
begun=$(date +%s.%N)
begin_node "$port" yes
found=""
for _ in $(seq 3000); do
    if ready "$port"; then found="$(ask 127.0.0.1 "$port" DBSIZE)"; break; fi
    kill -0 "$node" 2>/dev/null || break
    sleep 0.1
done
[ "$found" = "$keys" ] || { echo "killed and started again: ${found#:} of ${keys#:} keys are there" >&2; exit 1; }
echo "killed (kill -9) and started again: all ${found#:} keys are there after $(since "$begun")"

if [ "$cluster" = no ]; then
    echo
    echo "The second part of this demo, a cluster that loses a node, needs etcd: apt-get install etcd-server, and then make demo again."
    if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; then
        echo "$console"
        read -r -p "The node stays until Enter is pressed. " _ || true
    fi
    exit 0
fi
DEMO_NODE="$(figures "$scratch/node.json")"
export DEMO_NODE
trap - EXIT INT TERM
stop_all
remove_scratch
echo
exec scripts/demo-cluster.sh "$@"
