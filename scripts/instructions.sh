#!/usr/bin/env bash
# User instructions a command of a server, by counting: valgrind runs each server twice with different numbers of commands, and the
# difference of the two counts is divided by the difference of the commands. Unlike times, the counts repeat within some
# percent on a busy machine. One worker, 20 connections, 500-byte values, SET and GET 1:1, all in RAM. Takes two minutes or three.
# usage: scripts/instructions.sh [--ratio SETS:GETS] [--journal POLICY] [BINARY ...]
# flintkv binaries to compare; without one, this tree's release build. With --journal, each binary is counted with appendonly too,
# and appendfsync POLICY.
# redis-server is counted beside them where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

ratio=1:1
policy=
while [ $# -gt 1 ]; do
    case "$1" in
        --ratio) ratio="$2" ;;
        --journal) policy="$2" ;;
        *) break ;;
    esac
    shift 2
done

scripts/need.sh valgrind
if [ $# = 0 ]; then
    cargo build --release -p flintkv
    set -- "$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/flintkv"
fi
# Each server runs in a folder of its own.
mapfile -t binaries < <(realpath -e -- "$@")
load="${binaries[0]}"
connections=20
scratch="$(mktemp -d)"
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi; rm -rf "$scratch"' EXIT

port=18700
next_port() {
    port=$((port + 1))
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
}

# count PIPELINE REQUESTS SERVER ...: instructions of a server from its start to its end, with so many requests on each connection
count() {
    local pipeline="$1" requests="$2"
    shift 2
    next_port
    local log="$scratch/$port.log"
    mkdir "$scratch/$port"
    (cd "$scratch/$port" && exec valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file="$log" "$@" --port "$port") >/dev/null 2>&1 &
    server=$!
    local attempts=0
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        attempts=$((attempts + 1))
        if [ "$attempts" -gt 600 ]; then echo "$1 does not answer on port $port: see its log" >&2; exit 1; fi
        sleep 0.1
    done
    "$load" bench -p "$port" -t 1 -c "$connections" --pipeline "$pipeline" -d 500 --ratio "$ratio" --key-maximum 1000 -n "$requests" \
        --hide-histogram >/dev/null 2>&1
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'SHUTDOWN NOSAVE\r\n' >&3
    wait "$server" || true
    server=
    exec 3>&-
    rm -r "${scratch:?}/$port"
    sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$log"
}

few=600
many=3000
# row NAME SERVER ...
row() {
    local name="$1" cells=() pipeline a b
    shift
    for pipeline in 1 11 24; do
        a="$(count "$pipeline" "$few" "$@")"
        b="$(count "$pipeline" "$many" "$@")"
        cells+=("$(((b - a) / (connections * (many - few))))")
    done
    printf '%-40s %8s %8s %8s\n' "$name" "${cells[@]}"
}

printf '%-40s %8s %8s %8s\n' "user instructions a command" "pipe 1" "pipe 11" "pipe 24"
for binary in "${binaries[@]}"; do
    row "$binary" "$binary" server --io-threads 1 --console-port 0 --save ""
    if [ -n "$policy" ]; then
        row "journal, $policy" "$binary" server --io-threads 1 --console-port 0 --save "" \
            --appendonly yes --appendfsync "$policy" --auto-aof-rewrite-percentage 0
    fi
done
if command -v redis-server >/dev/null; then
    row redis-server redis-server --save "" --appendonly no
fi
