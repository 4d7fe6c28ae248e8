#!/usr/bin/env bash
# The Redis-on-Flash benchmark without replication, at 1/150 of its size, on a cluster of three nodes on loopback: two that keep data
# and one that only votes, each with a member of etcd. Builds the binary, installs etcd if it is missing, checks the flash, makes the
# cluster and the published database test-2 with four shards, and runs the scenario through the second node. On a terminal the cluster,
# with its web console, runs until Enter or Ctrl-C. The script always stops what it has started and leaves nothing behind.
# usage: scripts/demo-cluster.sh [options of flintkv scenario]   SCALE=1/150
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/scratch.sh
scale="${SCALE:-1/150}"

if ! command -v etcd >/dev/null; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
    echo "etcd is missing: installing Debian's etcd-server"
    # RUNLEVEL=1 keeps the package from starting a service of its own.
    if ! "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends etcd-server >/dev/null; then
        scripts/need.sh etcd || true
        echo "a cluster needs it; make demo shows one node" >&2
        exit 1
    fi
fi
scripts/need.sh cargo cc etcd
cargo build --release -p flintkv
flintkv="$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/flintkv"

processes=()
scratch=""
finish() {
    local code=$?
    trap - EXIT INT TERM
    # The nodes first: their last changes go to etcd.
    for process in "${processes[@]}"; do kill -TERM "$process" 2>/dev/null || true; done
    for _ in $(seq 150); do
        local left=0
        for process in "${processes[@]}"; do if kill -0 "$process" 2>/dev/null; then left=1; fi; done
        [ "$left" -eq 1 ] || break
        sleep 0.1
    done
    for process in "${processes[@]}"; do
        if kill -KILL "$process" 2>/dev/null; then echo "process $process did not stop within 15 seconds and was killed" >&2; fi
        wait "$process" 2>/dev/null || true
    done
    if [ -n "$scratch" ]; then
        [ "$code" -eq 0 ] || tail -n 20 "$scratch"/*/*.log >&2 2>/dev/null || true
        rm -rf "$scratch"
        rmdir .scratch 2>/dev/null || true
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make_scratch

"$flintkv" prepare-flash --check "$scratch"
echo

taken() {
    (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null
}
# All nodes have the same ports, each on its own address: the database's, the console's, the peers', and etcd's two.
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
password="$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n')"
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
begin() {
    "$flintkv" "$1" "$scratch/n$2/flintkv.conf" >>"$scratch/n$2/$1.log" 2>&1 &
    processes+=("$!")
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
for number in 1 2 3; do configure "$number"; done
begin server 1
begin coordinator 1
"$flintkv" cluster init demo --conf "$scratch/n1/flintkv.conf" --address 127.0.0.1 --name n1 --zone zone-1 | head -n 1
begin server 2
begin coordinator 2
join 2 data
begin quorum 3
join 3 quorum
# Each node has said what it has, and every member of etcd votes.
for _ in $(seq 100); do
    nodes="$("$flintkv" cluster nodes)"
    ready="$(echo "$nodes" | awk '$3 == "data" && $4 == "runs" && !/0 B of 0 B/ { data++ } $3 == "quorum" && $4 == "runs" { quorum++ }
        /learner/ { learners++ } END { print (data == 2 && quorum == 1 && !learners) ? "yes" : "no" }')"
    [ "$ready" != yes ] || break
    sleep 0.3
done
echo
echo "$nodes"

# The published database: 100 GB of memory, 30 % of it RAM, no replication, no persistence, four shards; here at the scale of the keys.
memory_limit=$(awk -v scale="$scale" 'BEGIN { split(scale, part, "/"); printf "%d", 100e9 * part[1] / (part[2] ? part[2] : 1) }')
echo
"$flintkv" database create test-2 --shards 4 --memory-limit "$memory_limit" --ram-limit 30% --persistence none --port "$port" |
    grep -E "^(memory limit|RAM limit|shards|persistence)"
"$flintkv" cluster status | sed -n '/^SHARD/,$p'
for _ in $(seq 50); do if taken 127.0.0.2 "$port"; then break; fi; sleep 0.1; done
echo "consoles: http://127.0.0.1:$((port + 1)) and http://127.0.0.2:$((port + 1)), user admin, password $password"
echo

# Through the second node, whose clients know nothing of a cluster.
"$flintkv" scenario rof --scale "$scale" --host 127.0.0.2 --port "$port" "$@" &
load=$!
processes+=("$load")
wait "$load"

echo
"$flintkv" database shards test-2
"$flintkv" database delete test-2 --yes test-2 >/dev/null
echo "the database is deleted again"
if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; then
    read -r -p "The cluster runs until you press Enter. " _ || true
fi
