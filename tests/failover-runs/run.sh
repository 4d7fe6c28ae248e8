#!/usr/bin/env bash
# Clusters of real processes under faults, judged by what their clients have seen: see README.md. Exits with 3 where there is no Go, no etcd,
# no nftables, or no right to make namespaces.
# usage: tests/failover-runs/run.sh [SECONDS [OPTIONS of the program]]   Without SECONDS: one run of kills, pauses and cuts, in a minute
#   FLINTKV        the binary
#   FLINTKV_SEED   of the first run, or "random"; else 1
set -euo pipefail
cd "$(dirname "$0")"
export FLINTKV="${FLINTKV:-$(realpath -m "${CARGO_TARGET_DIR:-../../target}")/debug/flintkv}"
program="$(./build.sh)"
seed="${FLINTKV_SEED:-1}"
if [ "$seed" = random ]; then seed=0; fi
CGO_ENABLED=0 go vet -mod=readonly .
CGO_ENABLED=0 go test -mod=readonly .
if [ $# -eq 0 ]; then
    exec "$program" -seed "$seed" -runs 1 -rounds 3 -replication sync -faults kill,pause,isolate -phases load
fi
seconds="$1"
shift
exec "$program" -seed "$seed" -seconds "$seconds" "$@"
