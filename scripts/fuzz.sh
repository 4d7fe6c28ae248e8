#!/usr/bin/env bash
# Runs every fuzz target for a while. Needs a nightly toolchain and cargo-fuzz; installs them where rustup is there.
# usage: scripts/fuzz.sh [SECONDS per target, 20]
# exit code: 0 nothing found, 3 not possible here, anything else a finding
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-20}"
impossible=3

[ -f fuzz/Cargo.toml ] || { echo "there is no fuzz/Cargo.toml"; exit "$impossible"; }
command -v rustup >/dev/null || { echo "no rustup, so no nightly toolchain"; exit "$impossible"; }
if ! rustup toolchain list | grep -q '^nightly'; then
    rustup toolchain install nightly --profile minimal || { echo "nightly cannot be installed"; exit "$impossible"; }
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install --locked --quiet cargo-fuzz || { echo "cargo-fuzz cannot be installed"; exit "$impossible"; }
fi
for target in $(cargo +nightly fuzz list); do
    echo "fuzz target $target, $seconds s"
    # What is found is kept in the first folder; the other is what to begin with.
    folders=("fuzz/corpus/$target")
    [ ! -d "fuzz/seeds/$target" ] || folders+=("fuzz/seeds/$target")
    options=(-max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20)
    # What Lua holds is not seen from outside: to the sanitizer it looks lost.
    [ "$target" != lua ] || options+=(-detect_leaks=0 -dict=fuzz/seeds/lua.dict)
    mkdir -p "${folders[0]}"
    cargo +nightly fuzz run "$target" "${folders[@]}" -- "${options[@]}"
done
