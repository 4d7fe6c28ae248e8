#!/usr/bin/env bash
# Simulates which values stay in RAM: a table of hit ratios for each kind of trace, a row for each replacement policy. A million keys take some
# minutes. usage: scripts/cachesim.sh [--only published,scan,moving,recent,zipf] [--keys N] [--ram PART,...] [--seed N] [FILE ...]
# A FILE has MONITOR's output, and is simulated instead of the traces.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh cargo cc
cargo build --release --quiet -p flintkv-cachesim
exec "$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/cachesim" "$@"
