#!/usr/bin/env bash
# Shows that the runs notice a mistake: a build of these sources whose primaries do not look at their serving leases must give stale reads.
# The product has no such switch, so this builds a changed copy of the sources, in a directory of its own.
# usage: tests/failover-runs/without-leases.sh [SECONDS, 1200]
set -euo pipefail
cd "$(dirname "$0")"
root="$(git rev-parse --show-toplevel)"
target="$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/without-leases"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
git -C "$root" ls-files -z | (cd "$root" && xargs -0 cp --parents -t "$copy" 2>/dev/null) || true
git -C "$copy" apply "$PWD/without-leases.patch"
(cd "$copy" && CARGO_TARGET_DIR="$target" cargo build --quiet -p flintkv --bin flintkv)
FLINTKV_SEED="${FLINTKV_SEED:-3600}" FLINTKV="$target/debug/flintkv" ./run.sh "${1:-1200}" -flagged -replication sync -persistence none -faults isolate -phases load
