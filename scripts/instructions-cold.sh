# shellcheck shell=bash
# A part of instructions.sh: counts what commands cost whose values are on flash. RAM has room for few of the values, so nearly each GET reads
# flash, and what it brings into RAM must leave again. Values that compress are memtier's; the others are different bytes for each SET. The rows
# below a row are what the store did per 100 commands meanwhile.

cold_keys=400000

# tell COMMAND: the server's answer, if it is one line or one text.
tell() {
    local answer
    printf '%s\r\n' "$1" >&3
    read -r -t 300 answer <&3
    case "$answer" in
        '$'*) answer="${answer%$'\r'}"; head -c "$((${answer#\$} + 2))" <&3 ;;
        *) echo "$answer" ;;
    esac
}
# info SECTION FIELD: a number.
info() { tell "INFO $1" | sed -n "s/^$2:\([0-9]*\).*/\1/p"; }
moves() {
    local field
    for field in flash_reads promotions demotions_clean demotions_written; do info tiering "$field"; done | tr '\n' ' '
}

# start_cold OPTION ...: a server in valgrind that counts nothing yet, with all keys, populated with these options of `flintkv bench`.
start_cold() {
    next_port
    mkdir "$scratch/$port"
    (cd "$scratch/$port" && exec valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$scratch/$port/profile" \
        "$load" server --port "$port" --io-threads 1 --console-port 0 --save "" --flash-path "$scratch/$port" \
        --appendonly no --memory-limit 2gb --ram-limit 1gb) >"$scratch/$port.log" 2>&1 &
    server=$!
    connect "$load"
    # What valgrind takes is no room for values.
    tell "CONFIG SET ram-limit $(($(info memory used_memory_rss) + (24 << 20)))" >/dev/null
    populate "$@"
}
populate() {
    "$load" bench -h 127.0.0.1 -p "$port" -t 1 -c 20 --pipeline 24 -d 500 --ratio 1:0 --key-maximum "$cold_keys" --key-pattern P:P -n allkeys \
        --hide-histogram "$@" >/dev/null 2>&1
}
stop_cold() {
    tell "SHUTDOWN NOSAVE" >/dev/null || true
    wait "$server" || true
    server=
    exec 3>&-
    rm -r "${scratch:?}/$port"
}

# count_cold PIPELINE REQUESTS RATIO OPTION ...: as count does, with the server that runs.
count_cold() {
    local pipeline="$1" requests="$2" of="$3" from
    shift 3
    rm -f "$scratch/$port"/profile.*
    callgrind_control --zero "$server" >/dev/null 2>&1
    from=$(date +%s%N)
    case "$requests" in
        *s) sleep "${requests%s}" ;;
        *) "$load" bench -h 127.0.0.1 -p "$port" -t 1 -c "$connections" --pipeline "$pipeline" -d 500 --ratio "$of" --key-maximum "$cold_keys" \
            --distinct-client-seed -n "$requests" --hide-histogram "$@" >/dev/null 2>&1 ;;
    esac
    local took=$((($(date +%s%N) - from) / 1000000))
    callgrind_control --dump "$server" >/dev/null 2>&1
    echo "$(sed -n 's/^totals: *\([0-9]*\).*/\1/p' "$scratch/$port"/profile.* | awk '{ sum += $1 } END { print sum }') $took"
}

# cold_row NAME RATIO OPTION ...: a row, and what the store did per 100 commands.
cold_row() {
    local name="$1" before after
    shift
    before="$(moves)"
    row "$name" count_cold "$@"
    after="$(moves)"
    echo "$before $after" | awk -v commands=$((counts * connections * (few + many) * $(wc -w <<<"$pipelines"))) '{
        printf "  per 100: %.1f reads, %.1f values stay, %.1f leave clean, %.1f written\n",
            100 * ($5 - $1) / commands, 100 * ($6 - $2) / commands, 100 * ($7 - $3) / commands, 100 * ($8 - $4) / commands
    }'
}

for values in "incompressible --data-compressibility=0" "memtier's"; do
    read -r what option <<<"$values"
    # shellcheck disable=SC2086
    start_cold $option
    callgrind_control --instr=on "$server" >/dev/null 2>&1
    cold_row "GET of a cold value, $what" 0:1
    # shellcheck disable=SC2086
    cold_row "SET of a cold value, $what" 1:0 $option
    stop_cold
done
