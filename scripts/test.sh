#!/usr/bin/env bash
# Every kind of test but fuzzing, each in a bounded part: format, lints, cargo's tests, the scripts under tests/.
# `make soak`, which fuzzes, and `make compat` go on at length. The last line sums up in cargo test's format.
#
# A script test is an executable tests/NAME/run.sh. It finds the binary in $FLINTKV and exits with 0 if all is well,
# 3 if it cannot run here.
#
#   FLINTKV_TEST_SECONDS   how long each random test goes on behind its least number of seeds
#   COMPAT_PROGRAMS        the programs of tests/clients that run here
set -uo pipefail
cd "$(dirname "$0")/.."

scripts/test-deps.sh || exit 1
. scripts/steps.sh
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
export FLINTKV="$target/debug/flintkv"

step "cargo fmt" cargo fmt --all --check

# In one call with everything that cargo test builds, so that nothing is built twice. The tests of the whole node run the binary.
step "cargo build" cargo build --quiet --workspace --bins --lib --tests --examples

# Beside cargo's tests, which wait as often as they compute.
scripts_lane() {
    local script
    for script in tests/*/run.sh; do
        [ -x "$script" ] || continue
        case "$script" in
            # Those whose libraries are there in seconds; `make compat` runs all.
            tests/clients/*) step "$script" "$script" ${COMPAT_PROGRAMS:-ioredis node-redis redis-py} ;;
            *) step "$script" "$script" ;;
        esac
    done
    step "cargo clippy" cargo clippy --workspace --all-targets --quiet -- -D warnings
}
beside scripts_lane

cargo_tests "cargo test" --workspace
join
sum_up
