#!/usr/bin/env bash
# Monitoring of FlintKV: /metrics, the alert rules and the dashboard in contrib/, and redis_exporter.
#
#   promtool    checks the example configuration, the rules and their unit tests, every expression of the dashboard, and
#               /metrics of a running server
#   check.py    the running server and its replica have every metric that an alert or the dashboard names; redis_exporter
#               scrapes the server under load without an error, and its figures are INFO's
#
# Both programs come from Debian's packages, unpacked into the target directory: nothing is installed.
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if it cannot run here.
set -euo pipefail
cd "$(dirname "$0")"

flintkv="$(realpath "${FLINTKV:-../../target/debug/flintkv}")"
kept="$(realpath -m "${CARGO_TARGET_DIR:-../../target}")/monitoring"
contrib="$(realpath ../../contrib)"
[ -x "$flintkv" ] || { echo "no binary at $flintkv: cargo build, or set FLINTKV" >&2; exit 1; }
for tool in apt-get dpkg-deb python3 redis-cli etcd; do
    command -v "$tool" >/dev/null || { echo "cannot run here: there is no $tool"; exit 3; }
done

scratch="$(mktemp -d)"
server=
replica=
members=()
stop() {
    for member in "${members[@]}"; do kill "$member" && wait "$member"; done 2>/dev/null || true
    [ -z "$replica" ] || { kill "$replica" && wait "$replica"; } 2>/dev/null || true
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 1' INT TERM

# unpacked PACKAGE FILE: keeps one file of a Debian package.
unpacked() {
    local package="$1" file="$2"
    [ ! -x "$kept/$(basename "$file")" ] || return 0
    mkdir -p "$kept" "$scratch/$package"
    (
        cd "$scratch/$package"
        apt-get download -qq "$package" >/dev/null 2>&1 || { apt-get update -qq && apt-get download -qq "$package"; }
        dpkg-deb --fsys-tarfile ./*.deb | tar -x "./$file"
        mv "$file" "$kept/"
    )
}
unpacked prometheus usr/bin/promtool
unpacked prometheus-redis-exporter usr/bin/prometheus-redis-exporter
promtool="$kept/promtool"

"$promtool" check config "$contrib/prometheus/scrape.yml"
"$promtool" test rules alerts_test.yml cluster_alerts_test.yml

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
port="$(free_port)" console="$(free_port)"
# RAM for a third of the load's data.
"$flintkv" server --port "$port" --console-port "$console" --dir "$scratch" --save "" --io-threads 2 \
    --flash-path "$scratch/flash" --memory-limit 256mb --ram-limit 40mb --slowlog-log-slower-than 0 >"$scratch/log" 2>&1 &
server=$!
# ready PORT CONSOLE PID LOG [ADDRESS]
ready() {
    local deadline=$((SECONDS + 60))
    until redis-cli -h "${5:-127.0.0.1}" -p "$1" ping >/dev/null 2>&1 && (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; do
        if ! kill -0 "$3" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            echo "FAIL the server does not start: $(tail -n 3 "$4")"
            exit 1
        fi
        sleep 0.05
    done
}
ready "$port" "$console" "$server" "$scratch/log"

replica_port="$(free_port)" replica_console="$(free_port)"
mkdir "$scratch/replica"
"$flintkv" server --port "$replica_port" --console-port "$replica_console" --dir "$scratch/replica" --save "" --io-threads 1 \
    --replicaof "127.0.0.1 $port" >"$scratch/replica.log" 2>&1 &
replica=$!
ready "$replica_port" "$replica_console" "$replica" "$scratch/replica.log"

# Two nodes of a cluster, whose etcd runs at the first. `shared` has a shard on each, and keys in both.
export FLINTKV_USER=admin FLINTKV_PASSWORD=a-password-for-this-test
for number in 1 2; do
    name="n$number" address="127.0.0.$number"
    mkdir "$scratch/$name"
    declare "port_$name=$(free_port)" "console_$name=$(free_port)"
    port_of="port_$name" console_of="console_$name"
    cat >"$scratch/$name.conf" <<CONF
dir $scratch/$name
state-dir $scratch/$name/state
bind $address
port ${!port_of}
console-port ${!console_of}
console-bind 127.0.0.1
console-password $FLINTKV_PASSWORD
peer-port $(free_port)
etcd-client-port $(free_port)
etcd-peer-port $(free_port)
etcd-quota 64mb
memory-limit 32mb
ram-limit 32mb
io-threads 1
save ""
CONF
    "$flintkv" server "$scratch/$name.conf" >"$scratch/$name.log" 2>&1 &
    members+=($!)
    ready "${!port_of}" "${!console_of}" $! "$scratch/$name.log" "$address"
done
"$flintkv" coordinator "$scratch/n1.conf" >"$scratch/coordinator.log" 2>&1 &
members+=($!)
# cluster ARGUMENT ...: what it says is shown if it fails.
cluster() {
    "$flintkv" "$@" >"$scratch/said" 2>&1 || { cat "$scratch/said"; tail -n 5 "$scratch"/n?.log "$scratch/coordinator.log"; exit 1; }
}
cluster cluster init monitored --conf "$scratch/n1.conf" --address 127.0.0.1 --name n1 --zone a
export FLINTKV_URL="http://127.0.0.1:$console_n1"
# The node has its cluster's records a moment after it has become its member.
deadline=$((SECONDS + 60))
until "$flintkv" cluster nodes >"$scratch/said" 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || { cat "$scratch/said"; exit 1; }
    sleep 0.2
done
cluster cluster token --no-coordinator
read -r at token < <(sed -n 's/.*cluster join \([^ ]*\) --token \([^ ]*\).*/\1 \2/p' "$scratch/said")
cluster cluster join "$at" --token "$token" --conf "$scratch/n2.conf" --address 127.0.0.2 --name n2 --zone b
shared="$(free_port)"
deadline=$((SECONDS + 60))
until "$flintkv" cluster nodes >"$scratch/said" 2>&1 && [ "$(grep ' runs ' "$scratch/said" | grep -vc '0 B of 0 B .*0 B of 0 B')" -eq 2 ]; do
    # The second node has not said yet what it has.
    [ "$SECONDS" -lt "$deadline" ] || { cat "$scratch/said"; exit 1; }
    sleep 0.2
done
cluster database create shared --shards 2 --memory-limit 128mb --ram-limit 128mb --port "$shared"
for key in {1..40}; do echo "set $key 1"; done | redis-cli -p "$shared" >/dev/null

python3 check.py --cluster-console "$console_n1" --shared "$shared" --second-node "${members[1]}" --flintkv "$flintkv" --port "$port" --console "$console" --replica-console "$replica_console" \
    --exporter "$kept/prometheus-redis-exporter" --exporter-port "$(free_port)" --promtool "$promtool" --contrib "$contrib" \
    --scratch "$scratch"
