#!/usr/bin/env bash
# Builds the program into target/failover-runs and prints its path. Exits with 3 where a tool is missing.
set -euo pipefail
cd "$(dirname "$0")"
for tool in go ip nft unshare nsenter etcd; do
    command -v "$tool" >/dev/null || { echo "there is no $tool" >&2; exit 3; }
done
target="$(realpath -m "${CARGO_TARGET_DIR:-../../target}")/failover-runs"
mkdir -p "$target"
export CGO_ENABLED=0
# A registry fails now and then.
for pause in 10 30 0; do
    if go build -mod=readonly -o "$target/program" . >&2; then
        echo "$target/program"
        exit
    fi
    sleep "$pause"
done
exit 1
