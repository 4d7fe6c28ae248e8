#!/usr/bin/env bash
# Tools for Redis, against a node with values of every type in RAM and on flash:
#
#   commander   Redis Commander 0.9.0: its tree of keys, the values of every type, its command line
#   telegraf    Telegraf's inputs redis and prometheus gather both ports without an error (with Go 1.26 or newer, which builds it in
#               some minutes, once)
#   insight     the commands with which RedisInsight browses, looks at a database and edits; none may be refused
#
#   tests/tools/run.sh [PART ...]   all without arguments; make compat runs it
#
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if nothing could run.
set -euo pipefail
cd "$(dirname "$0")"

flintkv="$(realpath "${FLINTKV:-../../target/debug/flintkv}")"
kept="$(realpath -m "${CARGO_TARGET_DIR:-../../target}")/tools"
[ -x "$flintkv" ] || { echo "no binary at $flintkv: cargo build, or set FLINTKV" >&2; exit 1; }
for tool in python3 redis-cli; do
    command -v "$tool" >/dev/null || { echo "cannot run here: there is no $tool"; exit 3; }
done
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(commander telegraf insight)
mkdir -p "$kept"

scratch="$(mktemp -d)"
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 1' INT TERM

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
# until_true WHAT COMMAND ...
until_true() {
    local what="$1" deadline=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "FAIL waited in vain until $what"; exit 1; }
        sleep 0.1
    done
}

port="$(free_port)" console="$(free_port)"
"$flintkv" server --port "$port" --console-port "$console" --dir "$scratch" --save "" --io-threads 2 --flash-path "$scratch/flash" \
    --memory-limit 256mb --ram-limit 40mb --slowlog-log-slower-than 0 >"$scratch/log" 2>&1 &
pids+=("$!")
until_true "the node answers" redis-cli -p "$port" ping
# More than fits into RAM.
"$flintkv" bench --port "$port" --hide-histogram --clients 4 --threads 1 --ratio 1:0 --key-pattern P:P --requests allkeys --pipeline 16 \
    --key-maximum 50000 --data-size 900 --key-prefix page: >/dev/null 2>&1
redis-cli -p "$port" >/dev/null <<'COMMANDS'
SET text hello EX 9000
HSET profile name Ada visits 1842
RPUSH cart sku-1 sku-2
SADD tags flash ram
ZADD board 12.5 ada 9 grace
XADD orders 1-1 total 12.50
XGROUP CREATE orders group 0
COMMANDS

commander() {
    command -v npm >/dev/null || { echo "skipped: there is no npm"; return 0; }
    local web
    [ -d "$kept/node_modules/redis-commander" ] ||
        npm --prefix "$kept" install --silent --no-audit --no-fund --no-save redis-commander@0.9.0 >/dev/null
    web="$(free_port)"
    (cd "$scratch" && exec node "$kept/node_modules/redis-commander/bin/redis-commander.js" --redis-port "$port" --address 127.0.0.1 --port "$web" --nosave) \
        >"$scratch/commander" 2>&1 &
    server=$!
    # A part is a subshell: what it starts, it ends.
    trap 'kill "$server"; wait "$server" || true' EXIT
    until_true "Redis Commander answers" curl -sf "http://127.0.0.1:$web/connections"
    python3 commander.py "http://127.0.0.1:$web"
}

telegraf() {
    local errors
    if [ ! -x "$kept/bin/telegraf" ]; then
        command -v go >/dev/null || { echo "skipped: there is no Go"; return 0; }
        # Only these plugins: all together would take half an hour.
        GOBIN="$kept/bin" go install -tags custom,inputs.redis,inputs.prometheus,outputs.file,serializers.influx,parsers.influx,parsers.prometheus \
            github.com/influxdata/telegraf/cmd/telegraf@v1.37.2 >"$scratch/go" 2>&1 ||
            { echo "skipped: Telegraf cannot be built here: $(tail -n 1 "$scratch/go")"; return 0; }
    fi
    cat >"$scratch/telegraf.conf" <<CONF
[agent]
  omit_hostname = true
  skip_processors_after_aggregators = true
[[inputs.redis]]
  servers = ["tcp://127.0.0.1:$port"]
[[inputs.prometheus]]
  urls = ["http://127.0.0.1:$console/metrics"]
CONF
    "$kept/bin/telegraf" --config "$scratch/telegraf.conf" --test >"$scratch/gathered" 2>"$scratch/errors"
    errors="$(grep ' E! ' "$scratch/errors" || true)"
    [ -z "$errors" ] || { echo "FAIL Telegraf: $errors"; return 1; }
    for measured in 'redis,.*keyspace_hits=' 'redis_keyspace,.*keys=' 'redis_cmdstat,command=set' '^> flintkv_tier_flash_free_segments,'; do
        grep -q "$measured" "$scratch/gathered" || { echo "FAIL Telegraf gathered no $measured"; return 1; }
    done
    echo "telegraf: $(grep -c '^> ' "$scratch/gathered") measurements"
}

insight() {
    local count=0 line reply
    # Patterns are no names of files.
    set -f
    while read -r line; do
        reply="$(redis-cli -p "$port" $line 2>&1)"
        # redis-cli tells no error from text of a reply by its code.
        case "$reply" in ERR* | NOPERM* | WRONGTYPE* | "(error)"*) echo "FAIL insight: $line: $reply"; return 1 ;; esac
        count=$((count + 1))
    done <insight.txt
    echo "insight: $count commands"
}

failed=0
for part in "${parts[@]}"; do
    started=$SECONDS verdict=ok
    ("$part") || { verdict=FAILED; failed=1; }
    echo "$part: $verdict; $((SECONDS - started)) s"
done
exit "$failed"
