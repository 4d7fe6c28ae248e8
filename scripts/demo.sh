#!/usr/bin/env bash
# The Redis-on-Flash benchmark at 1/150 of its size: builds the binary, starts a node on loopback with flash in
# a scratch directory, and runs the scenario against it over the network. Then the dataset is made durable, the node is
# killed and started again, and the keys are counted. Then a second node follows the first one, the first is killed for good,
# and the second is promoted. On a terminal the node, with its web console, runs until Enter or Ctrl-C. The script always
# stops the nodes when it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/scratch.sh
scale="${SCALE:-1/150}"

scripts/need.sh cargo cc
cargo build --release -p flintkv
flintkv="$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/flintkv"

node=""
replica=""
load=""
scratch=""
finish() {
    local code=$?
    trap - EXIT INT TERM
    if [ -n "$load" ]; then kill -TERM "$load" 2>/dev/null || true; fi
    if [ -n "$replica" ]; then
        kill -KILL "$replica" 2>/dev/null || true
        wait "$replica" 2>/dev/null || true
    fi
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
    if [ -n "$scratch" ]; then
        [ "$code" -eq 0 ] || tail -n 20 "$scratch/node.log" >&2 2>/dev/null || true
        rm -rf "$scratch"
        rmdir .scratch 2>/dev/null || true
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make_scratch

# Half of the published 100 GB was for replicas, so the first node gets the other half. 30 % of it is RAM. All sizes have the
# scale of the keys.
memory_limit=$(awk -v scale="$scale" 'BEGIN { split(scale, part, "/"); printf "%d", 50e9 * part[1] / (part[2] ? part[2] : 1) }')
mkdir "$scratch/flash"

# A port counts as free if nothing answers on it. If another process takes it first, the node fails to start, and another
# port is tried.
ready() {
    local reply=""
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'PING\r\n' >&3
    read -r -t 1 reply <&3 || true
    exec 3>&-
    [ "${reply%$'\r'}" = +PONG ]
} 2>/dev/null
taken() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
# The first line of the reply to a command, from the first node or from the node at the given port.
ask() {
    local reply=""
    exec 3<>"/dev/tcp/127.0.0.1/${2:-$port}" || return 1
    printf '%s\r\n' "$1" >&3
    read -r -t 120 reply <&3 || true
    exec 3>&-
    echo "${reply%$'\r'}"
} 2>/dev/null
begin_node() {
    "$flintkv" server --port "$1" --bind 127.0.0.1 --dir "$scratch" --logfile node.log \
        --console-port "$(($1 + 1))" --console-password "$password" \
        --memory-limit "$memory_limit" --ram-limit 30% --flash-path flash --appendonly "$2" &
    node=$!
}
# A node that follows the first one.
begin_replica() {
    mkdir -p "$scratch/replica/flash"
    "$flintkv" server --port "$1" --bind 127.0.0.1 --dir "$scratch/replica" --logfile node.log --console-port 0 \
        --memory-limit "$memory_limit" --ram-limit 30% --flash-path flash --appendonly no --replicaof "127.0.0.1 $port" &
    replica=$!
}
# Operations a second of the scenario's mix, for some seconds.
rate() {
    "$flintkv" bench -p "$port" -t 1 -c 20 --pipeline=24 -d 500 --ratio=1:1 --key-pattern=G:G --key-maximum="${keys#:}" --test-time=5 \
        --hide-histogram 2>/dev/null | awk '$1 == "Totals" { printf "%d", $2 }'
}
# The time since a moment, in seconds.
since() {
    awk -v from="$1" -v to="$(date +%s.%N)" 'BEGIN { printf "%.1f s", to - from }'
}
port=""
password="$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n')"
for _ in 1 2 3 4 5; do
    try=$((20000 + RANDOM % 20000))
    if taken "$try" || taken "$((try + 1))"; then continue; fi
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
echo "node $node on 127.0.0.1:$port, memory limit $memory_limit bytes, 30% of it RAM, flash in $scratch/flash"
console="console: http://127.0.0.1:$((port + 1)), user admin, password $password"
echo "$console"

# Runs in the background, followed by a wait, because bash delays signals until a foreground command ends.
"$flintkv" scenario rof-replicated --scale "$scale" --host 127.0.0.1 --port "$port" "$@" &
load=$!
wait "$load"
load=""

echo
begun=$(date +%s.%N)
reply="$(ask 'CONFIG SET appendonly yes')"
[ "$reply" = +OK ] || { echo "the dataset is not durable: $reply" >&2; exit 1; }
for n in $(seq 100); do ask "SET demo:$n written-after-the-checkpoint" >/dev/null; done
keys="$(ask DBSIZE)"
echo "appendonly yes: the dataset survives crashes from now on, after $(since "$begun"); ${keys#:} keys"
kill -KILL "$node"
wait "$node" 2>/dev/null || true
begun=$(date +%s.%N)
begin_node "$port" yes
found=""
for _ in $(seq 3000); do
    if ready "$port"; then found="$(ask DBSIZE)"; break; fi
    kill -0 "$node" 2>/dev/null || break
    sleep 0.1
done
[ "$found" = "$keys" ] || { echo "killed and started again: ${found#:} of ${keys#:} keys are there" >&2; exit 1; }
echo "killed (kill -9) and started again: all ${found#:} keys are there after $(since "$begun")"
if [ -t 0 ] && [ -t 1 ]; then
    echo
    echo "$console"
    read -r -p "The node stays until Enter is pressed; then a second node follows it, and takes over. " || true
fi

echo
alone="$(rate)"
second=""
for _ in 1 2 3 4 5; do
    try=$((20000 + RANDOM % 20000))
    taken "$try" || { second="$try"; break; }
done
begun=$(date +%s.%N)
begin_replica "$second"
# Waits until the replica has acknowledged a write that is made now.
for _ in $(seq 1200); do
    kill -0 "$replica" 2>/dev/null || break
    ask "SET demo:replica on" >/dev/null
    ask "GET demo:replica" "$second" 2>/dev/null | grep -q '^\$2' && break
    sleep 0.1
done
copied="$(ask DBSIZE "$second")"
[ "${copied#:}" -ge "${keys#:}" ] || { echo "the second node has ${copied#:} of ${keys#:} keys" >&2; exit 1; }
echo "a second node on 127.0.0.1:$second follows, and has all ${copied#:} keys after $(since "$begun")"
replicated="$(rate)"
awk -v alone="$alone" -v replicated="$replicated" 'BEGIN {
    printf "operations a second, 1:1 at a pipeline of 24: %d alone, %d with every write replicated on the same machine (%.2f)\n",
        alone, replicated, replicated / (alone ? alone : 1)
}'
# A client that waits for the replica after each write, until the first node is killed under it. A write that the replica
# does not acknowledge in time is not counted, because it may be lost.
: >"$scratch/waited"
(
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    for n in $(seq 1000000); do
        printf 'SET demo:waited:%d %d\r\nWAIT 1 1000\r\n' "$n" "$n" >&3
        read -r -t 30 <&3 && read -r -t 30 acknowledged <&3 || exit 0
        [ "${acknowledged%$'\r'}" != :1 ] || echo "$n" >>"$scratch/waited"
    done
) 2>/dev/null &
load=$!
# For two seconds, and longer if the replica has not acknowledged anything by then.
sleep 2
for _ in $(seq 600); do
    [ ! -s "$scratch/waited" ] || break
    sleep 0.1
done
kill -KILL "$node"
wait "$node" 2>/dev/null || true
node=""
wait "$load" 2>/dev/null || true
load=""
begun=$(date +%s.%N)
ask "REPLICAOF NO ONE" "$second" >/dev/null
for _ in $(seq 100); do
    [ "$(ask "SET demo:promoted yes" "$second")" = +OK ] && break
    sleep 0.01
done
took="$(since "$begun")"
waited=0
missing=0
while read -r n; do
    waited=$((waited + 1))
    [ "$(ask "EXISTS demo:waited:$n" "$second")" = :1 ] || missing=$((missing + 1))
done <"$scratch/waited"
[ "$waited" -gt 0 ] || { echo "the second node acknowledged none of the writes within a minute" >&2; exit 1; }
[ "$missing" -eq 0 ] || { echo "$missing of $waited acknowledged writes are missing" >&2; exit 1; }
echo "the first node was killed (kill -9), the second is the primary after $took; all $waited writes that WAIT had acknowledged are there"
