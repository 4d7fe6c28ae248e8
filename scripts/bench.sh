#!/usr/bin/env bash
# Every figure that the project promises, beside its target. Builds the release binary and measures it against Debian's
# redis-server on this machine. Takes about 20 minutes and 20 GB of free flash; QUICK=1 about 5 minutes.
# usage: scripts/bench.sh [--quick] [--only GROUP] [--json FILE] [--markdown FILE] [--dir DIR]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh cargo cc redis-server
cargo build --release -p flintkv
flintkv="$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/flintkv"

args=("$@")
if [ "${QUICK:-}" = 1 ]; then args+=(--quick); fi
exec "$flintkv" bench-suite "${args[@]}"
