#!/usr/bin/env bash
# User instructions a command of a server, by counting: valgrind runs each server with few and with many commands, and the
# difference of the two counts is divided by the difference of the commands. Work that the server does by the clock is
# excluded: its instructions per second are counted without commands, multiplied by the time of each run, and subtracted.
# Each figure is the median of several counts; they are repeatable within half a percent, even on a busy machine. One
# worker, 20 connections, 500-byte values, SET and GET 1:1, all in RAM. Takes some five minutes for each binary. usage:
# scripts/instructions.sh [--ratio SETS:GETS] [--journal POLICY] [--replica] [--cluster] [--cold] [--counts N] [--pipelines "N ..."] [BINARY ...]
# flintkv binaries to compare; without one, this tree's dist build. With --journal, each binary is also counted with appendonly yes and
# appendfsync POLICY. With --replica, each server is also counted while a replica of the same program follows it, whose instructions do not
# count, and the ratio of both is shown: take --ratio 1:0, since reads are not replicated. With --cluster, the first binary is also counted as two nodes of a cluster, of whose processes the instructions are
# added (instructions-cluster.sh), and through a proxy over one shard and over four in one process without a cluster (PROXIED: the binary
# of the example of this name; without it, this tree's is built). With --cold, only the first binary is counted, with values on flash
# (instructions-cold.sh). --counts: a figure is the median of N counts, 3 by default. The output
# shows the spread of the counts after each figure. If redis-server is installed, it is counted too.
set -euo pipefail
cd "$(dirname "$0")/.."

ratio=1:1
policy=
replica=
cluster=
cold=
counts=3
pipelines="1 11 24"
while [ $# -gt 0 ]; do
    case "$1" in
        --cluster) cluster=yes; shift; continue ;;
        --replica) replica=yes; shift; continue ;;
        --cold) cold=yes; shift; continue ;;
        --ratio) ratio="$2" ;;
        --journal) policy="$2" ;;
        --counts) counts="$2" ;;
        --pipelines) pipelines="$2" ;;
        *) break ;;
    esac
    shift 2
done

scripts/need.sh valgrind
if [ $# = 0 ]; then
    cargo build --profile dist -p flintkv
    set -- "$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist/flintkv"
fi
# Each server runs in its own folder.
mapfile -t binaries < <(realpath -e -- "$@")
load="${binaries[0]}"
# Valgrind counts each byte that one `rep stosb` or `rep movsb` clears or copies as an instruction. The C library takes them for long
# pieces if they are fast, so a buffer of 20 KB would cost 20,000. Let it take vectors.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:glibc.cpu.x86_rep_stosb_threshold=0x7fffffff
connections=20
scratch="$(mktemp -d)"
server=
# What follows the server, and its port.
follower=
follower_port=
# The processes of a cluster.
members=()
finish() {
    for process in $server $follower "${members[@]}"; do kill "$process" 2>/dev/null || true; done
    for process in "${members[@]}"; do wait "$process" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap finish EXIT

port=18700
next_port() {
    port=$((port + 1))
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
}

# connect NAME: waits for the server on `port`, and leaves a connection to it in descriptor 3.
connect() {
    local attempts=0
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        attempts=$((attempts + 1))
        if [ "$attempts" -gt 600 ]; then echo "$1 does not answer on port $port: see its log" >&2; exit 1; fi
        sleep 0.1
    done
    exec 3<>"/dev/tcp/127.0.0.1/$port"
}

# send PIPELINE REQUESTS HOST PORT: REQUESTS on each connection, or nothing for a time: `2s`.
send() {
    case "$2" in
        *s) sleep "${2%s}" ;;
        *) "$load" bench -h "$3" -p "$4" -t 1 -c "$connections" --pipeline "$1" -d 500 --ratio "$ratio" --key-maximum 1000 \
            -n "$2" --hide-histogram >/dev/null 2>&1 ;;
    esac
}

# count PIPELINE REQUESTS SERVER ...: the server's instructions from its first answer to its end, with REQUESTS requests on
# each connection, and the milliseconds. The start is not counted, because it calibrates a clock, which takes a number of
# instructions that varies by a million.
count() {
    count_server "" "$@"
}
count_followed() {
    count_server followed "$@"
}
# follow SERVER ...: starts a replica of the server on `port`, and waits until it has the server's dataset.
follow() {
    local primary="$port" answer=
    next_port
    mkdir "$scratch/$port"
    (cd "$scratch/$port" && exec "$@" --port "$port" --replicaof 127.0.0.1 "$primary") >/dev/null 2>&1 &
    follower=$!
    follower_port="$port"
    port="$primary"
    # The answer is the number of replicas that have everything.
    for _ in $(seq 600); do
        printf 'SET begin x\r\nWAIT 1 1000\r\n' >&3
        read -r -t 60 _ <&3
        read -r -t 60 answer <&3
        if [ "${answer%$'\r'}" = ":1" ]; then return; fi
    done
    echo "no replica follows $1" >&2
    exit 1
}
count_server() {
    local followed="$1" pipeline="$2" requests="$3"
    shift 3
    next_port
    local log="$scratch/$port.log"
    mkdir "$scratch/$port"
    # A process that redis-server forks for a replica's dataset must not add its count to the log.
    (cd "$scratch/$port" && exec valgrind --tool=callgrind --instr-atstart=no --child-silent-after-fork=yes --callgrind-out-file=/dev/null --log-file="$log" "$@" --port "$port") >/dev/null 2>&1 &
    server=$!
    local from
    connect "$1"
    printf 'PING\r\n' >&3
    read -r -t 60 _ <&3
    if [ -n "$followed" ]; then follow "$@"; fi
    callgrind_control --instr=on "$server" >/dev/null 2>&1
    from=$(date +%s%N)
    send "$pipeline" "$requests" 127.0.0.1 "$port"
    # Another connection than the one that has waited for the replica: redis-server 7.0 crashes if SHUTDOWN of that one has to wait too.
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'SHUTDOWN NOSAVE\r\n' >&3
    wait "$server" || true
    server=
    exec 3>&-
    if [ -n "$follower" ]; then
        kill "$follower"
        wait "$follower" || true
        follower=
        rm -r "${scratch:?}/$follower_port"
    fi
    rm -r "${scratch:?}/$port"
    echo "$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$log") $((($(date +%s%N) - from) / 1000000))"
}

few=600
many=3000
# row NAME COUNT ...: COUNT counts, and is called as COUNT ... with PIPELINE and REQUESTS after its first word. The figures stay in
# `row`, by pipeline.
declare -A row
row() {
    local name="$1" counter="$2" cells=() pipeline a b idle cell
    shift 2
    # Instructions a millisecond without commands.
    a="$("$counter" 1 1s "$@")"
    b="$("$counter" 1 6s "$@")"
    idle="$(awk -v a="$a" -v b="$b" 'BEGIN { split(a, x); split(b, y); print (y[1] - x[1]) / (y[2] - x[2]) }')"
    for pipeline in $pipelines; do
        cell="$(for _ in $(seq "$counts"); do
            a="$("$counter" "$pipeline" "$few" "$@")"
            b="$("$counter" "$pipeline" "$many" "$@")"
            awk -v a="$a" -v b="$b" -v idle="$idle" -v commands=$((connections * (many - few))) 'BEGIN {
                split(a, x); split(b, y)
                print (y[1] - x[1] - idle * (y[2] - x[2])) / commands
            }'
        done | sort -n | awk '{ all[NR] = $1 } END {
            median = all[int((NR + 1) / 2)]
            printf "%.0f ±%.2f%%", median, 50 * (all[NR] - all[1]) / median
        }')"
        row[$pipeline]="${cell%% *}"
        cells+=("$cell")
    done
    line "$name" "${cells[@]}"
}
# line NAME CELL ...
line() {
    printf '%-52s' "$1"
    shift
    printf ' %14s' "$@"
    echo
}

# followed SERVER ...: the row of a server that a replica follows, and its ratio to the row before.
followed() {
    local pipeline cells=()
    declare -A alone
    for pipeline in $pipelines; do alone[$pipeline]="${row[$pipeline]}"; done
    row "  with a replica" count_followed "$@"
    for pipeline in $pipelines; do
        cells+=("$(awk -v a="${row[$pipeline]}" -v b="${alone[$pipeline]}" 'BEGIN { printf "%.3f", a / b }')")
    done
    line "  ratio" "${cells[@]}"
}

# shellcheck disable=SC2086
line "user instructions a command, pipeline" $pipelines
if [ "$cold" = yes ]; then
    . scripts/instructions-cold.sh
    exit
fi
for binary in "${binaries[@]}"; do
    row "$binary" count "$binary" server --io-threads 1 --console-port 0 --save ""
    if [ -n "$replica" ]; then
        followed "$binary" server --io-threads 1 --console-port 0 --save ""
    fi
    if [ -n "$policy" ]; then
        row "journal, $policy" count "$binary" server --io-threads 1 --console-port 0 --save "" \
            --appendonly yes --appendfsync "$policy" --auto-aof-rewrite-percentage 0
    fi
done
if [ "$cluster" = yes ]; then
    if [ -z "${PROXIED:-}" ]; then
        cargo build --profile dist -p flintkv --example proxied
        PROXIED="$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist/examples/proxied"
    fi
    for shards in 1 4; do
        row "through a proxy in one process, shards: $shards" count "$(realpath -e "$PROXIED")" "$shards" --io-threads 1 --console-port 0 --save ""
    done
    . scripts/instructions-cluster.sh
fi
if command -v redis-server >/dev/null; then
    row redis-server count redis-server --save "" --appendonly no
    if [ -n "$replica" ]; then followed redis-server --save "" --appendonly no; fi
fi
