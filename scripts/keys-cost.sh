#!/usr/bin/env bash
# Measures the cost of KEYS over cold keys: its time compared with a sequential read of the same bytes of flash, and the
# latency of other clients' GETs with and without it. 750,000 keys of 500 incompressible bytes, ram-limit 100mb, two workers,
# about a minute. usage: scripts/keys-cost.sh [BINARY]   without one, this tree's dist build
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh redis-cli python3
if [ $# = 0 ]; then
    cargo build --profile dist -p flintkv
    set -- "$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist/flintkv"
fi
binary="$(realpath -e -- "$1")"
mkdir -p .scratch
scratch="$(mktemp -d "$PWD/.scratch/keys-cost.XXXXXX")"
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" || true; fi; rm -rf "$scratch"' EXIT
port=18790
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
mkdir "$scratch/flash"
"$binary" server --port "$port" --console-port 0 --save "" --ram-limit 100mb --memory-limit 2gb --io-threads 2 \
    --flash-path "$scratch/flash" --dir "$scratch" >"$scratch/log" 2>&1 &
server=$!
ask() { timeout 60 redis-cli -p "$port" "$@"; }
until ask ping >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
    sleep 0.1
done

python3 - "$port" <<'PY'
import os, socket, sys
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
AT_ONCE, BYTES = 1000, 500
for first in range(0, 750_000, AT_ONCE):
    noise = os.urandom(AT_ONCE * BYTES)
    commands = []
    for number in range(AT_ONCE):
        key = b"memtier-%d" % (first + number)
        value = noise[number * BYTES:(number + 1) * BYTES]
        commands.append(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, BYTES, value))
    server.sendall(b"".join(commands))
    wanted = AT_ONCE * len("+OK\r\n")
    while wanted > 0:
        wanted -= len(server.recv(1 << 20))
PY
sleep 2
info() { ask info tiering | tr -d '\r' | sed -n "s/^$1://p"; }
keys() { ask keys 'memtier-74999?' >/dev/null; }
gets() {
    "$binary" bench -p "$port" -t 1 -c 8 -d 500 --ratio 0:1 --key-pattern R:R --key-maximum 749999 --key-prefix memtier- \
        --test-time 3 --rate-limiting 1500 --hide-histogram --print-percentiles 50,99,99.9 2>/dev/null | awk '/^Totals/ { print $6, $7, $8 }'
}
ms() { local from; from=$(date +%s%N); "$@" >/dev/null 2>&1; echo $((($(date +%s%N) - from) / 1000000)); }

used=$(info used_flash)
file=$(ls "$scratch"/flash/*.log)
echo "cold values: $(info values_in_flash), $((used >> 20)) MiB of flash"
for _ in 1 2 3; do
    echo "sequential read: $(ms dd if="$file" of=/dev/null bs=1M count=$((used >> 20)) iflag=direct) ms; KEYS: $(ms keys) ms"
done
echo "reads of three KEYS: $(info flash_reads), $(($(info flash_read_bytes) >> 20)) MiB"
gets >/dev/null
for _ in 1 2 3; do
    echo "GET p50, p99, p99.9 in ms alone: $(gets)"
    (sleep 0.3; keys; keys; keys) &
    beside=$!
    echo "                   beside KEYS: $(gets)"
    wait "$beside"
done
