#!/usr/bin/env bash
# Redis's own test-suite against FlintKV: the Tcl suite of Debian's source package of redis, fetched when this runs. Each
# unit gets a node of its own, as an external server; or, for tests of replication, starts FlintKV itself in redis-server's place.
#
#   tests/redis/run.sh           the units of PART, all values in RAM: at most three minutes
#   tests/redis/run.sh --all     every unit, in both forms
#   tests/redis/run.sh --replication
#                                the units of OWN, which start servers themselves: primaries and replicas
#   tests/redis/run.sh UNIT ...  these units: `type/list expire` in both forms, `integration/psync2 unit/wait` with servers of
#                                their own
#   REDIS_FORMS="hot cold"       for units that get a node: `hot`: all values in RAM; `cold`: every command finds its values on flash;
#                                `proxy`: the node is a proxy over four shards ($PROXIED: `cargo build -p flintkv --example proxied`)
#
# differences.tsv beside this file lists the tests that fail or cannot run, each with its reason. A test that fails and is
# not listed fails the run; so does a listed test that passes, or that does not exist.
#
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if nothing could run.
set -uo pipefail
cd "$(dirname "$0")"

root="$(realpath ../..)"
flintkv="$(realpath "${FLINTKV:-$root/target/debug/flintkv}")"
proxied="$(realpath -m "${PROXIED:-$root/target/debug/examples/proxied}")"
list="$PWD/differences.tsv"
ALL=(printver dump protocol keyspace scan info-command type/string type/incr type/list type/list-2 type/list-3 type/set
    type/zset type/hash type/stream type/stream-cgroups sort expire other multi quit latency-monitor pubsub pubsubshard
    slowlog scripting functions maxmemory introspection introspection-2 limits obuf-limits bitops bitfield geo memefficiency
    hyperloglog lazyfree wait pause querybuf tracking networking)
PART=(dump protocol keyspace scan info-command type/string type/incr type/hash type/stream-cgroups sort multi quit pubsub
    slowlog scripting functions introspection-2 bitfield lazyfree tracking)
# The units that start redis-server.sh, which is beside this file. Their form is `own`.
OWN=(integration/replication integration/replication-2 integration/replication-3 integration/replication-4
    integration/replication-psync integration/psync2 integration/psync2-pingoff
    integration/psync2-reg integration/psync2-master-restart integration/block-repl integration/failover
    integration/shutdown unit/wait)
forms="${REDIS_FORMS:-hot cold}" units=() own=()
case "${1:-}" in
    --all) units=("${ALL[@]}") ;;
    --replication) own=("${OWN[@]}") ;;
    "") units=("${PART[@]}") forms="${REDIS_FORMS:-hot}" ;;
    *)
        for unit in "$@"; do
            case "$unit" in integration/* | unit/*) own+=("$unit") ;; *) units+=("$unit") ;; esac
        done
        ;;
esac

[ -x "$flintkv" ] || { echo "no binary at $flintkv: cargo build, or set FLINTKV" >&2; exit 1; }
if [ "${#own[@]}" -gt 0 ] && ! command -v redis-benchmark >/dev/null; then
    echo "Redis's own tests of replication are not run: redis-benchmark is missing: apt-get install redis-tools" >&2
    exit 3
fi
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
    local server=("$flintkv" server)
    [ "$form" != proxy ] || server=("$proxied" 4)
    (cd "$dir" && exec "${server[@]}" "${words[@]}") >"$dir/node.log" 2>&1 &
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

# run_suite DIR OPTION ...: a unit of the suite, whose words go to DIR/out. The ports are above those of the Rust tests (`free_port`), and
# below those that the system gives to clients.
run_suite() {
    local dir="$1"
    shift
    timeout "${REDIS_UNIT_SECONDS:-600}" tclsh tests/test_helper.tcl --durable --skipfile "$dir/skip" \
        --baseport "$((30200 + RANDOM % 2000))" --portcount 500 "$@" 2>&1 |
        # Its own summary repeats the failures.
        sed -e 's/\x1b\[[0-9;]*m//g' -e '/^ *The End$/,$d' >"$dir/out"
}

has_ended() {
    grep -q '^\[[0-9]*/[0-9]* done\]: ' "$1/out"
}

# run_parts DIR: runs each part into which the unit was cut. A part that was ended by an error outside of its tests fails as
# `(behind NAME)`, where NAME is its last test.
run_parts() {
    local dir="$1" part number last
    : >"$dir/all"
    for number in $(seq "$(find "$dir/suite/tests/integration" -name 'part-*.tcl' | wc -l)"); do
        part="integration/part-$number"
        (cd "$dir/suite" && FLINTKV="$flintkv" run_suite "$dir" --single "$part" --clients 1)
        if ! has_ended "$dir"; then
            last="$(sed -n -e "s/^\[err\]: \(.*\) in tests\/.*\.tcl$/\1/p" -e 's/^\[ok\]: \(.*\) ([0-9]* ms)$/\1/p' "$dir/out" | tail -n 1)"
            echo "[err]: (behind ${last:-part $number}) in tests/$part.tcl" >>"$dir/out"
        fi
        cat "$dir/out" >>"$dir/all"
    done
    mv "$dir/all" "$dir/out"
}

# run_unit FORM UNIT
run_unit() {
    local form="$1" unit="$2" dir="$scratch/$1-${2//\//-}" name options=()
    mkdir -p "$dir"
    listed skip "$form" "$unit" >"$dir/skip"
    if [ "$form" = own ]; then
        # A copy, because the suite stores the files of its servers in its own directory.
        mkdir -p "$dir/suite/src"
        cp -r "$suite/tests" "$dir/suite/tests"
        ln -s "$PWD/redis-server.sh" "$dir/suite/src/redis-server"
        ln -s "$(command -v redis-benchmark)" "$(command -v redis-cli)" "$dir/suite/src/"
        tclsh split.tcl "$suite/tests/$unit.tcl" "$dir/suite/tests/integration/part"
        run_parts "$dir"
        rm -rf "$dir/suite"
    else
        start_node "$form" "$dir" || { complain "$form $unit: no node"; return; }
        # Redis 7.2 keeps short lists in listpacks, which 7.0 does not have.
        case "$unit" in type/list* | sort | keyspace | dump | lazyfree) options+=(--ignore-encoding) ;; esac
        [ "$form" != proxy ] || options+=(--singledb --cluster-mode)
        (cd "$suite" && run_suite "$dir" --host 127.0.0.1 --port "$port" --single "unit/$unit" \
            --tags "-needs:repl -needs:save -large-memory" "${options[@]}")
        has_ended "$dir" || complain "$form $unit: it did not end: $(tail -n 1 "$dir/out")"
        kill -0 "$node" 2>/dev/null || complain "$form $unit: the node has ended"
        stop_node
        rm -rf "$dir/flash"
    fi
    sed -n "s/^\[err\]: \(.*\) in tests\/\(unit\|integration\)\/.*\.tcl$/\1/p" "$dir/out" | sort -u >"$dir/failed"
    sed -n 's/^\[ok\]: \(.*\) ([0-9]* ms)$/\1/p' "$dir/out" | sort -u >"$dir/passed"
    sed -n 's/^\[skip\]: //p' "$dir/out" | sort -u >"$dir/skipped"
    listed fails "$form" "$unit" | sort -u >"$dir/expected"
    while IFS= read -r name; do
        complain "$form $unit: $name"
        grep -aF -A 3 "[err]: $name in tests" "$dir/out" | sed -n '2,4s/^/    /p'
    done < <(comm -23 "$dir/failed" "$dir/expected")
    while IFS= read -r name; do
        if grep -qxF -- "$name" "$dir/passed"; then
            complain "$form $unit: it is listed and passes: $name"
        elif [ "$form" != proxy ]; then
            # With --singledb and --cluster-mode the suite leaves some out.
            complain "$form $unit: it is listed and there is no such test: $name"
        fi
    done < <(comm -13 "$dir/failed" "$dir/expected")
    while IFS= read -r name; do
        [ "$form" = proxy ] || grep -qxF -- "$name" "$dir/skipped" || complain "$form $unit: it is listed and there is no such test: $name"
    done <"$dir/skip"
    passed=$((passed + $(wc -l <"$dir/passed")))
}

# run_twice FORM UNIT: again if it fails, because some of its tests depend on the speed of the machine.
run_twice() {
    local form="$1" unit="$2" before_failed=$failed before_passed=$passed
    run_unit "$form" "$unit"
    if [ "$failed" -gt "$before_failed" ]; then
        echo "$form $unit: tried again once"
        failed=$before_failed passed=$before_passed
        rm -rf "$scratch/$form-${unit//\//-}"
        run_unit "$form" "$unit"
    fi
    [ "$failed" -gt "$before_failed" ] || echo "ok $form $unit"
}

for form in $forms; do
    for unit in "${units[@]}"; do
        # A proxy refuses CLIENT TRACKING, with which each of its tests begins.
        [ "$form/$unit" != proxy/tracking ] || continue
        run_twice "$form" "$unit"
    done
done
for unit in "${own[@]}"; do
    run_twice own "$unit"
done
echo "passed $passed, failed $failed, listed $(grep -vc '^#' "$list")"
[ "$failed" -eq 0 ]
