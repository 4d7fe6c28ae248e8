#!/usr/bin/env bash
# Tests under Miri, an interpreter that detects undefined behaviour: a mutable reference together with another reference to one value,
# reads of freed or uninitialised memory, leaks, data races. It is some hundred times slower than the processor, so the
# tests do less under it. Arguments choose tests: scripts/miri.sh index::
# Exits with 3 if Miri is not installed.
#
# Index entries hold addresses as numbers, so the provenance of pointers is permissive. Tests of whole nodes, of threads and
# of compression are skipped, because Miri does not support io_uring or C code.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "Miri is missing: rustup component add miri rust-src --toolchain nightly" >&2
    exit 3
fi
export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation ${MIRIFLAGS:-}"
export PROPTEST_CASES="${PROPTEST_CASES:-2}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"

run() {
    local package="$1"
    shift
    echo "==> miri: $package"
    cargo +nightly miri test --package "$package" --lib -- "$@"
}

if [ $# -gt 0 ]; then
    run flintkv-store "$@"
    exit
fi
# All unsafe code except system calls is in the store. The store's tests of pages are skipped, because they call zstd.
# The tests of waiting and watching are skipped too: each locks all 1,024 stripes repeatedly, which takes minutes under Miri,
# and the code that they test contains no unsafe.
run flintkv-store arena:: commit:: deadlines:: effects:: guards:: hash:: index:: keyspace::tests:: listen:: object:: parts:: \
    word::
run flintkv-resp
run flintkv-value
