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
for tool in apt-get dpkg-deb python3 redis-cli; do
    command -v "$tool" >/dev/null || { echo "cannot run here: there is no $tool"; exit 3; }
done

scratch="$(mktemp -d)"
server=
replica=
stop() {
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
"$promtool" test rules alerts_test.yml

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
port="$(free_port)" console="$(free_port)"
# RAM for a third of the load's data.
"$flintkv" server --port "$port" --console-port "$console" --dir "$scratch" --save "" --io-threads 2 \
    --flash-path "$scratch/flash" --memory-limit 256mb --ram-limit 40mb --slowlog-log-slower-than 0 >"$scratch/log" 2>&1 &
server=$!
# ready PORT CONSOLE PID LOG
ready() {
    local deadline=$((SECONDS + 60))
    until redis-cli -p "$1" ping >/dev/null 2>&1 && (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; do
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

python3 check.py --flintkv "$flintkv" --port "$port" --console "$console" --replica-console "$replica_console" \
    --exporter "$kept/prometheus-redis-exporter" --exporter-port "$(free_port)" --promtool "$promtool" --contrib "$contrib" \
    --scratch "$scratch"
