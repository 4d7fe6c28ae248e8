#!/usr/bin/env bash
# The Redis-on-Flash benchmark, at 1/150 of its size, on the published layout: three nodes on loopback, two that keep data and one that only
# votes, each with a member of etcd.
# With replication: two shards with a replica each, a write is acknowledged when both copies have it. The scenario runs through one
# address. Then its load goes on, and in the middle of it a node is killed, with its member of etcd. A client of this script's own finds
# out how long no write was acknowledged, and reads every acknowledged write back.
# Without replication: four shards, and the scenario again.
# Builds the binary, and installs etcd if it is missing and can be. On a terminal the cluster, with its web console, runs until Enter or
# Ctrl-C. The script always stops what it has started and leaves nothing behind.
# usage: scripts/demo-cluster.sh [options of flintkv scenario]   SCALE=1/150   DEMO_NODE: the figures of demo.sh, for the table
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/demo-common.sh
scale="${SCALE:-1/150}"
options=(--dry-time 15 --test-time 15)
if [ "$#" -gt 0 ]; then options=("$@"); fi

if [ -z "${DEMO_NODE:-}" ]; then
    have_etcd
    scripts/need.sh cargo cc
    cargo build --release -p flintkv
fi
flintkv="$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/flintkv"

# Of the nodes, by their names: server1, coordinator1, quorum3; and of what else runs in the background.
declare -A processes=()
scratch=""
finish() {
    local code=$? left
    trap - EXIT INT TERM
    for process in "${processes[@]}"; do kill -TERM "$process" 2>/dev/null || true; done
    for _ in $(seq 150); do
        left=0
        for process in "${processes[@]}"; do if kill -0 "$process" 2>/dev/null; then left=1; fi; done
        [ "$left" -eq 1 ] || break
        sleep 0.1
    done
    for process in "${processes[@]}"; do
        if kill -KILL "$process" 2>/dev/null; then echo "process $process did not stop within 15 seconds and was killed" >&2; fi
        wait "$process" 2>/dev/null || true
    done
    if [ -n "$scratch" ] && [ "$code" -ne 0 ] && [ "$code" -lt 128 ]; then tail -n 20 "$scratch"/*/*.log >&2 2>/dev/null || true; fi
    remove_scratch
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make_scratch

# All nodes have the same ports, each on its own address: the databases', the console's, the peers', and etcd's two.
port=""
for _ in 1 2 3 4 5; do
    try=$((20000 + RANDOM % 20000))
    free=1
    for host in 127.0.0.1 127.0.0.2 127.0.0.3; do
        for number in 0 1 2 3 4; do if taken "$host" "$((try + number))"; then free=0; fi; done
    done
    if [ "$free" -eq 1 ]; then port="$try"; break; fi
done
[ -n "$port" ] || { echo "no free ports were found" >&2; exit 1; }
export FLINTKV_URL="http://127.0.0.1:$((port + 1))" FLINTKV_USER=admin FLINTKV_PASSWORD="$password"

configure() {
    mkdir -p "$scratch/n$1/flash"
    cat > "$scratch/n$1/flintkv.conf" <<CONF
dir $scratch/n$1
state-dir $scratch/n$1/state
logfile node.log
port 0
unixsocket $scratch/n$1/default.sock
bind 127.0.0.$1
console-bind 127.0.0.$1
console-port $((port + 1))
console-password $password
peer-port $((port + 2))
etcd-client-port $((port + 3))
etcd-peer-port $((port + 4))
flash-path $scratch/n$1/flash
memory-limit 64mb
ram-limit 48mb
appendonly no
CONF
}
# usage: begin PROGRAM NODE
begin() {
    "$flintkv" "$1" "$scratch/n$2/flintkv.conf" >>"$scratch/n$2/$1.log" 2>&1 &
    processes[$1$2]=$!
}
# Kills it as the loss of its machine would.
lose() {
    kill -KILL "${processes[$1]}"
    wait "${processes[$1]}" 2>/dev/null || true
    unset "processes[$1]"
}
# Waits for what was started in the background, because bash delays signals until a foreground command ends.
await() {
    local code=0
    wait "${processes[$1]}" || code=$?
    unset "processes[$1]"
    return "$code"
}
join() {
    local token
    # etcd admits one new member at a time.
    for _ in $(seq 50); do
        token="$("$flintkv" cluster token --json 2>/dev/null | sed -n 's/.*"token": *"\(fkj1[0-9a-f]*\)".*/\1/p')"
        [ -z "$token" ] || break
        sleep 0.2
    done
    FLINTKV_JOIN_TOKEN="$token" "$flintkv" cluster join "127.0.0.1:$((port + 2))" --conf "$scratch/n$1/flintkv.conf" \
        --address "127.0.0.$1" --name "n$1" --zone "zone-$1" --role "$2"
}
# Waits until a condition holds.
# usage: until_true SECONDS WHAT COMMAND ...
until_true() {
    local deadline=$((SECONDS + $1)) what="$2"
    shift 2
    until "$@"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "not in time: $what" >&2
            "$flintkv" cluster status >&2 || true
            "$flintkv" database shards "$database" >&2 || true
            exit 1
        fi
        sleep 0.1
    done
}
# Each node has said what it has, and every member of etcd votes.
is_complete() {
    "$flintkv" cluster nodes 2>/dev/null | awk '
        $3 == "data" && $4 == "runs" && !/0 B of 0 B/ { data++ }
        $3 == "quorum" && $4 == "runs" { quorum++ }
        /learner/ { learners++ }
        END { exit !(data == 2 && quorum == 1 && !learners) }'
}
# The lines about copies: shard, node, role, whether it is in sync.
copies() {
    "$flintkv" database shards "$database" 2>/dev/null | awk '/IN SYNC/ { copies = 1; next } copies'
}
# Every shard has both copies in sync, and both answer.
is_in_sync() {
    copies | awk '$4 == "yes" && $5 ~ /^[0-9]+$/ { in_sync++ } END { exit !(in_sync == 4) }'
}
primaries_are_at_n1() {
    copies | awk '$3 == "primary" && $2 == "n1" { primaries++ } END { exit !(primaries == 2) }'
}
is_served_at() {
    [ "$(ask "$1" "$port" PING)" = +PONG ]
}

echo "--- Three nodes"
for number in 1 2 3; do configure "$number"; done
begin server 1
begin coordinator 1
"$flintkv" cluster init demo --conf "$scratch/n1/flintkv.conf" --address 127.0.0.1 --name n1 --zone zone-1 | head -n 1
begin server 2
begin coordinator 2
join 2 data
begin quorum 3
join 3 quorum
database=""
until_true 60 "three nodes that run" is_complete
echo
"$flintkv" cluster nodes
console="consoles: http://127.0.0.1:$((port + 1)) and http://127.0.0.2:$((port + 1)), user admin, password $password"
echo
echo "$console"

# The published memory limit is 100 GB, replicas included, and 30 % of it RAM; here at the scale of the keys.
memory_limit="$(scaled 100e9)"
create() {
    "$flintkv" database create "$database" --memory-limit "$memory_limit" --ram-limit 30% --persistence none --port "$port" "$@" |
        grep -E "^(memory limit|RAM limit|shards|copies|replicas|persistence)"
    until_true 30 "database $database at both nodes" is_served_at 127.0.0.1
    until_true 30 "database $database at both nodes" is_served_at 127.0.0.2
}
# Clients know nothing of a cluster: they have the address of one node.
# usage: scenario NAME
scenario() {
    "$flintkv" scenario "$1" --scale "$scale" --host 127.0.0.1 --port "$port" --json "$scratch/$1.json" "${options[@]}" &
    processes[load]=$!
    await load
}

echo
echo "--- With replication: two shards, each with a primary and a replica; a write is acknowledged when both have it"
database=test-1
create --shards 2 --replicas 1 --replication sync
until_true 60 "copies in sync" is_in_sync
scenario rof-replicated
"$flintkv" database shards "$database"

# The key of a number. {a} and {b} are in different shards.
tags=(a b)
# Writes the numbers from 1 on, each to a key of its own, one after the other, to both shards in turns, until there is a file `stop`. Begins at
# the node that is to be lost; a client whose connection ends connects to the other one. What is not answered with OK is not acknowledged, and
# not repeated. Measures the longest time between two acknowledged writes to the same shard.
write_numbers() {
    trap '' PIPE
    local at=127.0.0.2 other=127.0.0.1 n=0 acknowledged=0 not=0 longest=0 last=(0 0) now reply shard
    while [ ! -e "$scratch/stop" ]; do
        if ! exec 3<>"/dev/tcp/$at/$port"; then
            read -r at other <<<"$other $at"
            sleep 0.01
            continue
        fi
        while [ ! -e "$scratch/stop" ]; do
            n=$((n + 1))
            shard=$((n % 2))
            reply=""
            printf 'SET check:{%s}:%d %d\r\n' "${tags[shard]}" "$n" "$n" >&3 && read -r -t 60 reply <&3 || true
            if [ "$reply" = $'+OK\r' ]; then
                now="${EPOCHREALTIME//[.,]/}"
                acknowledged=$((acknowledged + 1))
                if [ "${last[shard]}" -gt 0 ] && [ $((now - last[shard])) -gt "$longest" ]; then longest=$((now - last[shard])); fi
                last[shard]="$now"
                echo "$n" >&4
            else
                not=$((not + 1))
                # An error is an answer; without one, the connection has ended.
                [ -n "$reply" ] || break
            fi
        done
        exec 3>&-
    done
    echo "$acknowledged $not $((longest / 1000))" >"$scratch/written"
} 2>/dev/null 4>"$scratch/acknowledged"
# How many of the acknowledged numbers cannot be read back.
count_missing() {
    local missing=0 batch asks n length value
    exec 3<>"/dev/tcp/$1/$port"
    while mapfile -n 200 -t batch && [ "${#batch[@]}" -gt 0 ]; do
        asks=()
        for n in "${batch[@]}"; do asks+=("${tags[n % 2]}" "$n"); done
        printf 'GET check:{%s}:%d\r\n' "${asks[@]}" >&3
        for n in "${batch[@]}"; do
            length="" value=""
            read -r -t 60 length <&3
            if [[ "$length" = '$'[0-9]* ]]; then read -r -t 60 value <&3; fi
            [ "${value%$'\r'}" = "$n" ] || missing=$((missing + 1))
        done
    done <"$scratch/acknowledged"
    exec 3>&-
    echo "$missing"
}

echo
keys="$(scaled 75e6)"
"$flintkv" bench -h 127.0.0.1 -p "$port" -t 1 -c 20 --pipeline=11 -d 500 --ratio=1:1 --key-pattern=G:G --key-maximum="$keys" \
    --key-stddev="$(scaled 5125e3)" --distinct-client-seed --randomize --test-time=20 --hide-histogram \
    --json-out-file="$scratch/bench.json" >"$scratch/bench.log" 2>&1 &
processes[load]=$!
write_numbers &
processes[writer]=$!
sleep 5
echo "the load goes on, through 127.0.0.1. Now node n2 is killed (kill -9), with its member of etcd"
begun="$(date +%s.%N)"
lose server2
lose coordinator2
until_true 60 "another primary" primaries_are_at_n1
echo "n1 has both primaries, as the list of shards shows after $(since "$begun")"
"$flintkv" cluster operations | awk 'NR == 1 || / failover /'
await load
echo "n2 is started again"
begun="$(date +%s.%N)"
begin coordinator 2
begin server 2
until_true 120 "copies in sync" is_in_sync
echo "both copies of both shards are in sync again after $(since "$begun")"
: >"$scratch/stop"
await writer
"$flintkv" database shards "$database" | awk '/IN SYNC/ { copies = 1 } copies'
read -r acknowledged unacknowledged gap_ms <"$scratch/written"
[ "$acknowledged" -gt 0 ] || { echo "no write was acknowledged" >&2; exit 1; }
missing="$(count_missing 127.0.0.2)"
# Of the load as a whole.
load_ms="$(awk -F': *|,' '
    /"Totals"/ { totals = 1 }
    totals && $1 ~ /"Max Latency"/ && longest == "" { longest = $2 }
    END { printf "%.0f", longest }' "$scratch/bench.json")"
errors="$(tr '\r' '\n' <"$scratch/bench.log" | sed -n 's/^warning: \([0-9]* × .*\)/\1/p')"
echo "the longest that a client of the load waited for a reply: $load_ms ms; errors: ${errors:-none}"
echo "a client that writes one number after the other: $acknowledged acknowledged, $unacknowledged not; at most $gap_ms ms between two to the same shard"
echo "read back through n2: $missing of $acknowledged acknowledged writes are missing"
[ "$missing" -eq 0 ] || exit 1

echo
echo "--- Without replication: four shards"
"$flintkv" database delete "$database" --yes "$database" >/dev/null
database=test-2
create --shards 4
scenario rof
"$flintkv" database shards "$database"

row() {
    printf '%-52s %12s %12s %12s\n' "$@"
}
# usage: figures_row WHAT OPS LATENCY HITS
figures_row() {
    row "$1" "$2" "$3 ms" "$4 %"
}
echo
echo "--- The published figures, on two nodes of 8 vCPU each; and here, on $(nproc) processors for all nodes and the load, at scale $scale"
row "" "ops/s" "latency" "RAM hits"
row "published, 2 shards with replicas" 115,000 "< 1 ms" "85 %"
read -r ops latency hits <<<"$(figures "$scratch/rof-replicated.json")"
figures_row "here" "$ops" "$latency" "$hits"
row "published, 4 shards without replicas" 160,000 "< 1 ms" "85 %"
read -r ops latency hits <<<"$(figures "$scratch/rof.json")"
figures_row "here" "$ops" "$latency" "$hits"
if [ -n "${DEMO_NODE:-}" ]; then
    read -r ops latency hits <<<"$DEMO_NODE"
    figures_row "here, one node without replicas" "$ops" "$latency" "$hits"
fi
echo "a node lost under load: no write to one of the shards was acknowledged for $gap_ms ms; $missing of $acknowledged acknowledged writes are missing"
if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; then
    echo
    echo "$console"
    read -r -p "The cluster runs until you press Enter. " _ || true
fi
