#!/usr/bin/env bash
# Runs every fuzz target for a while, two at a time. Needs a nightly toolchain; installs it if rustup is available.
# Inputs that failed are in fuzz/artifacts; fuzz/target/HOST/release/TARGET FILE runs such an input again. usage:
# scripts/fuzz.sh [SECONDS per target, 20] exit code: 0 nothing found, 3 cannot run here, anything else a finding
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-20}"
impossible=3

[ -f fuzz/Cargo.toml ] || { echo "there is no fuzz/Cargo.toml"; exit "$impossible"; }
command -v rustup >/dev/null || { echo "no rustup, so no nightly toolchain"; exit "$impossible"; }
if ! rustup toolchain list | grep -q '^nightly'; then
    rustup toolchain install nightly --profile minimal || { echo "nightly cannot be installed"; exit "$impossible"; }
fi

# The flags that cargo-fuzz passes to the compiler: coverage for libFuzzer, and the address sanitizer. Installing cargo-fuzz itself
# takes longer than the targets run.
host="$(rustc +nightly -vV | sed -n 's/^host: //p')"
flags="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares"
# With --target, build scripts and macros go without these flags.
RUSTFLAGS="$flags" CARGO_TARGET_DIR=fuzz/target \
    cargo +nightly build --quiet --release --manifest-path fuzz/Cargo.toml --target "$host" --bins

# run TARGET
run() {
    local target="$1" log="fuzz/artifacts/$1/log"
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    # The first folder keeps new inputs; the other one has the initial inputs.
    local folders=("fuzz/corpus/$target")
    [ ! -d "fuzz/seeds/$target" ] || folders+=("fuzz/seeds/$target")
    local options=(-max_total_time="$seconds" -rss_limit_mb=2048 -timeout=60 -artifact_prefix="fuzz/artifacts/$target/")
    # The sanitizer does not see Lua's references, so it would report Lua's memory as leaked.
    [ "$target" != lua ] || options+=(-detect_leaks=0 -dict=fuzz/seeds/lua.dict)
    if ASAN_OPTIONS=detect_odr_violation=0 "fuzz/target/$host/release/$target" "${folders[@]}" "${options[@]}" >"$log" 2>&1; then
        echo "fuzz target $target: $(tail -n 1 "$log")"
    else
        echo "FAIL fuzz target $target"
        tail -n 40 "$log"
        return 1
    fi
}

running=() failed=0
for file in fuzz/fuzz_targets/*.rs; do
    run "$(basename "$file" .rs)" &
    running+=("$!")
    if [ "${#running[@]}" -ge 2 ]; then
        wait "${running[0]}" || failed=1
        running=("${running[@]:1}")
    fi
done
for pid in "${running[@]}"; do wait "$pid" || failed=1; done
exit "$failed"
