#!/usr/bin/env bash
# A bounded part of every kind of test except fuzzing: format, lints, cargo's tests, the scripts under tests/.
# `make soak`, which also fuzzes, and `make compat` take long. The last line is a summary in cargo test's format.
#
# A script test is an executable tests/NAME/run.sh. It finds the binary in $FLINTKV and exits with 0 if all is well,
# 3 if it cannot run here.
#
#   FLINTKV_TEST_SECONDS   how long each random test runs after its minimum number of seeds
#   COMPAT_PROGRAMS        the programs of tests/clients to run
set -uo pipefail
cd "$(dirname "$0")/.."

scripts/test-deps.sh || exit 1
. scripts/steps.sh
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
export FLINTKV="$target/debug/flintkv"
# The property tests draw the same cases each time, as the other random tests do. `make soak` draws new ones.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}"

# Nothing here has to survive a loss of power, and the disk of a busy machine makes an etcd that waits for it slow. So the etcd that the tests
# find is one that does not wait, if it knows the flag for this, which its help does not list.
own="$target/etcd-without-fsync"
real="$(type -ap etcd | grep -vxF "$own/etcd" | head -n 1)"
if timeout 10 "$real" --unsafe-no-fsync --version 2>/dev/null | grep '^etcd Version: ' >/dev/null; then
    mkdir -p "$own"
    printf '#!/bin/sh\nexec "%s" --unsafe-no-fsync "$@"\n' "$real" >"$own/etcd.$$"
    chmod +x "$own/etcd.$$"
    # Another run may use it now.
    mv "$own/etcd.$$" "$own/etcd"
    export PATH="$own:$PATH"
fi

step "cargo fmt" cargo fmt --all --check

# In CI, where nothing is compiled yet, clippy checks the crates while they are compiled, because a separate `cargo clippy`
# would check all crates again. These are the variables that `cargo clippy` sets. A finding fails the build.
if [ -n "${CI:-}" ]; then
    export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
fi

# One call for everything that cargo test builds, so that nothing is built twice. The tests of the whole node run the binary.
step "cargo build" cargo build --quiet --workspace --all-targets

# The tests of whole clusters wait for leases and for etcd more than they compute, so they follow the scripts, and all others of cargo's run at the
# same time. A third lane would save little time, and would slow down the other two.
of_clusters=(certificates cluster cluster_faults consoles handovers large_cluster operations replicas)
mapfile -t of_others < <(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for target in package["targets"]:
        if target["kind"] == ["test"] and target["name"] not in sys.argv[1:]:
            print("--test=" + target["name"])' "${of_clusters[@]}" | sort -u)

scripts_lane() {
    local script
    for script in tests/*/run.sh; do
        [ -x "$script" ] || continue
        case "$script" in
            # Only the part that installs nothing; `make compat` runs the tools themselves.
            tests/tools/*) step "$script" "$script" insight ;;
            # The programs whose libraries install within seconds; `make compat` runs all.
            tests/clients/*)
                step "$script" "$script" ${COMPAT_PROGRAMS:-ioredis node-redis redis-py}
                step "a client of a cluster" env CLIENTS_FORMS=cluster CLUSTER="$target/debug/examples/cluster" "$script" ioredis
                ;;
            *) step "$script" "$script" ;;
        esac
    done
    cargo_tests "tests of clusters" --workspace "${of_clusters[@]/#/--test=}"
    [ -n "${CI:-}" ] || step "cargo clippy" cargo clippy --workspace --all-targets --quiet -- -D warnings
}
beside scripts_lane

cargo_tests "cargo test" --workspace --lib --bins "${of_others[@]}"
cargo_tests "tests in documentation" --workspace --doc
join
sum_up
