#!/usr/bin/env bash
# Every test: format, lints, cargo's tests, the scripts under tests/, short fuzz runs.
# A step that fails does not keep the others from running. The last line sums up in cargo test's format.
#
# A script test is an executable tests/NAME/run.sh. It finds the binary in $FLINTKV and exits with 0 if all is well,
# 3 if it cannot run here.
set -uo pipefail
cd "$(dirname "$0")/.."

started=$SECONDS
passed=0 failed=0 ignored=0
failures=()
log="$(mktemp)"
broken="$(mktemp)"
trap 'rm -f "$log" "$broken"' EXIT

scripts/test-deps.sh || exit 1
# Nobody builds again what a clean clone has built.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

# step NAME COMMAND ...: counts as one test. What it says of a failure is said again at the end, which is what people read.
step() {
    local name="$1" code=0
    shift
    echo
    echo "==> $name"
    "$@" 2>&1 | tee "$log" || code=$?
    case "$code" in
        0) passed=$((passed + 1)) ;;
        3) ignored=$((ignored + 1)); echo "skipped: $name" ;;
        *)
            failed=$((failed + 1)); failures+=("$name (exit code $code)")
            echo "==> $name" >>"$broken"
            grep -aE 'FAIL|panicked|not prepared|^(error|warning|Diff in)' -A 3 "$log" | tail -n 40 >>"$broken"
            ;;
    esac
}

# cargo test, whose own tests are counted one by one.
cargo_tests() {
    echo
    echo "==> cargo test"
    local code=0
    cargo test --workspace --no-fail-fast 2>&1 | tee "$log" || code=$?
    local sums
    sums="$(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$log" |
        awk '{ p += $1; f += $2; i += $3 } END { print p + 0, f + 0, i + 0 }')"
    local p f i
    read -r p f i <<<"$sums"
    passed=$((passed + p)) failed=$((failed + f)) ignored=$((ignored + i))
    if [ "$code" -ne 0 ]; then
        # A build that fails runs no test: that is a failure too.
        [ "$f" -gt 0 ] || failed=$((failed + 1))
        failures+=("cargo test")
        # Which tests, and why: the end of a long output is what people read.
        grep -aE '^(test .*FAILED|thread .* panicked at|error(\[|:))' -A 2 "$log" | tail -n 60 >>"$broken"
    fi
}

step "cargo fmt" cargo fmt --all --check
step "cargo clippy" cargo clippy --workspace --all-targets --quiet -- -D warnings
# The tests of the whole node run the binary, which cargo test alone would not build.
step "cargo build" cargo build --quiet -p flintkv
FLINTKV="$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/flintkv"
export FLINTKV
cargo_tests
for script in tests/*/run.sh; do
    [ -x "$script" ] || continue
    step "$script" "$script"
done
step "fuzz" scripts/fuzz.sh "${FUZZ_SECONDS:-8}"

echo
cat "$broken"
for failure in "${failures[@]}"; do
    echo "failed: $failure"
done
verdict=ok
[ "$failed" -eq 0 ] || verdict=FAILED
echo "test result: $verdict. $passed passed; $failed failed; $ignored ignored; 0 measured; 0 filtered out;" \
    "finished in $((SECONDS - started)).00s"
[ "$failed" -eq 0 ]
