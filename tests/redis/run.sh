#!/usr/bin/env bash
# Redis's own test-suite against FlintKV: the Tcl suite of Debian's source package of redis, fetched when this runs. Each
# unit gets a node of its own, as an external server.
#
#   tests/redis/run.sh           the units of PART, all values in RAM: at most three minutes
#   tests/redis/run.sh --all     every unit, in both forms
#   tests/redis/run.sh UNIT ...  these units, in both forms: type/list expire
#   REDIS_FORMS="hot cold"       `hot`: all values in RAM; `cold`: every command finds its values on flash
#
# differences.tsv beside this file lists the tests that fail or cannot run, each with its reason. A test that fails and is
# not listed fails the run; so does a listed test that passes, or that does not exist.
#
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if nothing could run.
set -uo pipefail
cd "$(dirname "$0")"

root="$(realpath ../..)"
flintkv="$(realpath "${FLINTKV:-$root/target/debug/flintkv}")"
list="$PWD/differences.tsv"
ALL=(printver dump protocol keyspace scan info-command type/string type/incr type/list type/list-2 type/list-3 type/set
    type/zset type/hash type/stream type/stream-cgroups sort expire other multi quit latency-monitor pubsub pubsubshard
    slowlog scripting functions maxmemory introspection introspection-2 limits obuf-limits bitops bitfield geo memefficiency
    hyperloglog lazyfree wait pause querybuf tracking networking)
PART=(dump protocol keyspace scan info-command type/string type/incr type/hash type/stream-cgroups sort multi quit pubsub
    slowlog scripting functions introspection-2 bitfield lazyfree tracking)
forms="${REDIS_FORMS:-hot cold}"
case "${1:-}" in
    --all) units=("${ALL[@]}") ;;
    "") units=("${PART[@]}") forms="${REDIS_FORMS:-hot}" ;;
    *) units=("$@") ;;
esac

[ -x "$flintkv" ] || { echo "no binary at $flintkv: cargo build, or set FLINTKV" >&2; exit 1; }
command -v tclsh >/dev/null || { echo "Redis's own tests are not run: tclsh is missing: apt-get install tcl" >&2; exit 3; }
suite="$(./fetch.sh "${REDIS_SUITE_DIR:-$root/.scratch/redis}")" || exit 3

scratch="$(mktemp -d)"
node=""
stop_node() {
    [ -z "$node" ] || { kill "$node"; wait "$node"; } 2>/dev/null
    node=""
}
trap 'stop_node; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_node FORM DIR: sets $node and $port.
start_node() {
    local form="$1" dir="$2" tries
    port="$(free_port)"
    # One thread: the tests rely on the order in which the commands of several connections arrive.
    # The limits at which Redis 7.0 changes the encoding of sets; 7.2 has listpacks for small ones.
    local words=(--port "$port" --bind 127.0.0.1 --console-port 0 --io-threads 1 --enable-debug-command yes
        --set-max-listpack-entries 0)
    if [ "$form" = cold ]; then
        words+=(--memory-limit 1536mb --ram-limit 1gb --flash-path "$dir/flash" --debug-tier-mode cold)
    fi
    (cd "$dir" && exec "$flintkv" server "${words[@]}") >"$dir/node.log" 2>&1 &
    node=$!
    for tries in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
        kill -0 "$node" 2>/dev/null || break
        sleep 0.1
    done
    echo "the node does not start:" >&2
    tail -n 3 "$dir/node.log" >&2
    return 1
}

# listed KIND FORM UNIT: the names of the tests that are listed so.
listed() {
    awk -F '\t' -v kind="$1" -v form="$2" -v unit="$3" \
        '!/^#/ && $1 == kind && ($2 == "both" || $2 == form) && $3 == unit { print $4 }' "$list"
}

failed=0 passed=0
complain() {
    echo "FAIL $*"
    failed=$((failed + 1))
}

# run_unit FORM UNIT
run_unit() {
    local form="$1" unit="$2" dir="$scratch/$1-${2//\//-}" name code options=()
    mkdir -p "$dir"
    start_node "$form" "$dir" || { complain "$form $unit: no node"; return; }
    listed skip "$form" "$unit" >"$dir/skip"
    # Redis 7.2 keeps short lists in listpacks, which 7.0 does not have.
    case "$unit" in type/list* | sort | keyspace | dump | lazyfree) options+=(--ignore-encoding) ;; esac
    (cd "$suite" && timeout "${REDIS_UNIT_SECONDS:-300}" tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" --durable \
        --single "unit/$unit" --skipfile "$dir/skip" --tags "-needs:repl -needs:save -large-memory" \
        --baseport "$((30000 + RANDOM % 2000))" --portcount 500 "${options[@]}") 2>&1 |
        sed 's/\x1b\[[0-9;]*m//g' >"$dir/out"
    code="${PIPESTATUS[0]}"
    kill -0 "$node" 2>/dev/null || complain "$form $unit: the node has ended"
    stop_node
    rm -rf "$dir/flash"
    # Its own summary repeats the failures.
    sed -i '/^ *The End$/,$d' "$dir/out"
    sed -n "s/^\[err\]: \(.*\) in tests\/unit\/.*\.tcl$/\1/p" "$dir/out" | sort -u >"$dir/failed"
    sed -n 's/^\[ok\]: \(.*\) ([0-9]* ms)$/\1/p' "$dir/out" | sort -u >"$dir/passed"
    sed -n 's/^\[skip\]: //p' "$dir/out" | sort -u >"$dir/skipped"
    listed fails "$form" "$unit" | sort -u >"$dir/expected"
    grep -q '^\[[0-9]*/[0-9]* done\]: ' "$dir/out" || complain "$form $unit: it did not end (exit code $code): $(tail -n 1 "$dir/out")"
    while IFS= read -r name; do
        complain "$form $unit: $name"
        grep -aF -A 3 "[err]: $name in tests" "$dir/out" | sed -n '2,4s/^/    /p'
    done < <(comm -23 "$dir/failed" "$dir/expected")
    while IFS= read -r name; do
        if grep -qxF -- "$name" "$dir/passed"; then
            complain "$form $unit: it is listed and passes: $name"
        else
            complain "$form $unit: it is listed and there is no such test: $name"
        fi
    done < <(comm -13 "$dir/failed" "$dir/expected")
    while IFS= read -r name; do
        grep -qxF -- "$name" "$dir/skipped" || complain "$form $unit: it is listed and there is no such test: $name"
    done <"$dir/skip"
    passed=$((passed + $(wc -l <"$dir/passed")))
}

for form in $forms; do
    for unit in "${units[@]}"; do
        before_failed=$failed before_passed=$passed
        run_unit "$form" "$unit"
        if [ "$failed" -gt "$before_failed" ]; then
            # Some of its tests depend on the speed of the machine.
            echo "$form $unit: tried again once"
            failed=$before_failed passed=$before_passed
            rm -rf "$scratch/$form-${unit//\//-}"
            run_unit "$form" "$unit"
        fi
        [ "$failed" -gt "$before_failed" ] || echo "ok $form $unit"
    done
done
echo "passed $passed, failed $failed, listed $(grep -vc '^#' "$list")"
[ "$failed" -eq 0 ]
