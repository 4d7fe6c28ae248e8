# The functions that test.sh, soak.sh and compat.sh share; source this file from the root of the repository. A failed step does not
# stop the other steps. `sum_up` prints the results of all steps in cargo test's format.

set -uo pipefail
started=$SECONDS
scratch="$(mktemp -d)"
# Files: the results of all steps, in lines of "passed failed ignored"; the failures; the output that is shown; the
# durations.
results="$scratch/results" failures="$scratch/failures" broken="$scratch/broken" durations="$scratch/durations"
: >"$results" >"$failures" >"$broken" >"$durations"
lanes=()
take_away() {
    local pid
    for pid in "${lanes[@]}"; do kill -TERM -- "-$pid" 2>/dev/null; done
    rm -rf "$scratch"
}
trap take_away EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# In CI a clean clone is built only once, so incremental data is useless. Without line numbers in backtraces the crates
# compile in a tenth less time; a panic still names its file and line.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0

# timed NAME COMMAND ...: runs the command, and records its duration and its processor time.
timed() {
    local name="$1" from=$SECONDS code=0 TIMEFORMAT='%U %S' times
    times="$(mktemp -p "$scratch")"
    shift
    { time "$@" 2>&3; } 3>&2 2>"$times" || code=$?
    awk -v name="$name" -v wall="$((SECONDS - from))" \
        '{ printf "%5d s, %5.0f s of processors: %s\n", wall, $1 + $2, name }' "$times" >>"$durations"
    return "$code"
}

# step NAME COMMAND ...: counts as one test. The output of a failed step is repeated at the end, where it is easy to
# find.
step() {
    local name="$1" code=0 log
    log="$(mktemp -p "$scratch")"
    shift
    echo
    echo "==> $name"
    timed "$name" "$@" 2>&1 | tee "$log" || code=$?
    case "$code" in
        0) echo "1 0 0" >>"$results" ;;
        3) echo "0 0 1" >>"$results"; echo "skipped: $name" ;;
        *)
            echo "0 1 0" >>"$results"
            echo "$name (exit code $code)" >>"$failures"
            { echo "==> $name"; grep -aE 'FAIL|panicked|not prepared|^(error|warning|Diff in)' -A 3 "$log" | tail -n 40; } >>"$broken"
            ;;
    esac
}

# cargo_tests NAME ARGUMENTS ...: runs cargo test and counts each of its tests.
cargo_tests() {
    local name="$1" code=0 log
    log="$(mktemp -p "$scratch")"
    shift
    echo
    echo "==> $name"
    timed "$name" cargo test --no-fail-fast "$@" 2>&1 | tee "$log" || code=$?
    local p f i
    read -r p f i < <(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$log" |
        awk '{ p += $1; f += $2; i += $3 } END { print p + 0, f + 0, i + 0 }')
    # Each test program's time, the longest first.
    awk '/^ +Running /{ split($0, a, "[()]"); of = a[2]; sub(/.*\//, "", of) }
        /^test result:/{ t = $NF; sub(/s$/, "", t); if (t >= 3) printf "%5.0f s of it: %s\n", t, of }' "$log" |
        sort -rn | sed 's/^/    /' >>"$durations"
    if [ "$code" -ne 0 ]; then
        # A failed build runs no test, so count it as a failure.
        [ "$f" -gt 0 ] || f=1
        echo "$name" >>"$failures"
        # Print which tests failed and why at the end, because the end of a long output is read first.
        grep -aE '^(test .*FAILED|thread .* panicked at|it failed with seed|error(\[|:))' -A 2 "$log" | tail -n 60 >>"$broken"
    fi
    echo "$p $f $i" >>"$results"
}

# beside FUNCTION: runs its steps in parallel with the following ones, in a process group that ends with this script. `join`
# prints their output.
beside() {
    set -m
    "$1" >"$scratch/lane-${#lanes[@]}" 2>&1 &
    lanes+=("$!")
    set +m
}

# Waits for all lanes.
join() {
    local number
    for number in "${!lanes[@]}"; do
        wait "${lanes[$number]}"
        cat "$scratch/lane-$number"
    done
    lanes=()
}

sum_up() {
    local p f i verdict=ok
    echo
    echo "==> how long each step took"
    cat "$durations"
    echo
    cat "$broken"
    sed 's/^/failed: /' "$failures"
    read -r p f i < <(awk '{ p += $1; f += $2; i += $3 } END { print p + 0, f + 0, i + 0 }' "$results")
    [ "$f" -eq 0 ] || verdict=FAILED
    echo "test result: $verdict. $p passed; $f failed; $i ignored; 0 measured; 0 filtered out;" \
        "finished in $((SECONDS - started)).00s"
    [ "$f" -eq 0 ]
}
