#!/usr/bin/env bash
# Client libraries as applications use them, against FlintKV in two forms: all values in RAM; `debug-tier-mode cold`,
# where every command finds its values on flash.
#
#   tests/clients/run.sh [PROGRAM ...]   programs are the folders here; all of them without arguments
#   CLIENTS_FORMS="ram cold redis"       forms to run; `redis` is Debian's redis-server, which proves the programs
#   CLIENTS_FORMS="cluster shard"        through a node of a cluster of three: a database with four shards; with one shard, where
#                                        commands may have keys of several slots ($CLUSTER: `cargo build -p flintkv-tests --example cluster`).
#
# cluster.tsv lists the families that fail in a cluster, each with the error that it gets and the reason. What fails and is not
# listed, or with another error, fails the run; so does a listed family that passes.
#
# A program is a folder with two executables. `prepare DIR` installs pinned libraries into DIR, once; it exits with 3
# where its language is missing. `run DIR` runs the families of commands against the server of the environment and
# prints a line for each that fails ("FAIL family: why"), then "passed N, failed N":
#   REDIS_HOST REDIS_PORT   a server of its own, empty but for database 15
#   REDIS_TLS_PORT          with certificates in REDIS_CERTS: ca.crt, client.crt, client.key (a client needs one)
#   REDIS_SOCKET            a unix socket
#   REDIS_KIND              flintkv, or redis for redis-server 7.0
#   REDIS_FORM              ram, cold or redis, because a value on flash has no idle time
#
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if nothing could run.
set -uo pipefail
cd "$(dirname "$0")"

root="$(realpath ../..)"
flintkv="${FLINTKV:-$root/target/debug/flintkv}"
kept="${CLIENTS_DIR:-${CARGO_TARGET_DIR:-$root/target}/clients}"
cluster="${CLUSTER:-$root/target/debug/examples/cluster}"
forms="${CLIENTS_FORMS:-ram cold}"
programs=("$@")
[ "${#programs[@]}" -gt 0 ] || for run in */run; do programs+=("${run%/run}"); done
[ -x "$flintkv" ] || { echo "no binary at $flintkv: cargo build, or set FLINTKV" >&2; exit 1; }
mkdir -p "$kept"

scratch="$(mktemp -d)"
# In memory if possible: each command waits for its write, and on some file systems the first write to each place of a new file
# takes milliseconds.
flash="$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)"
servers="$scratch/pids"
: >"$servers"
stop_all() {
    # Each program's shell ends its own cluster, which has directories to remove.
    local programs
    programs="$(jobs -rp)"
    [ -z "$programs" ] || { kill $programs; wait $programs; } 2>/dev/null
    while read -r pid; do kill "$pid" 2>/dev/null; done <"$servers"
    rm -rf "$scratch" "$flash"
}
trap stop_all EXIT
trap 'exit 1' INT TERM

# An authority, a certificate for this machine and one for clients.
certificates() {
    local dir="$1" name
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=FlintKV tests" \
        -keyout "$dir/ca.key" -out "$dir/ca.crt" 2>/dev/null
    for name in server client; do
        openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout "$dir/$name.key" -out "$dir/$name.csr" 2>/dev/null
        openssl x509 -req -in "$dir/$name.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial -days 3650 \
            -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") -out "$dir/$name.crt" 2>/dev/null
    done
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

listens() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# start FORM DIR: starts a server and exports its address. Its process id is in $server.
start() {
    local form="$1" dir="$2" port tls_port
    case "$form" in cluster | shard) start_cluster "$form" "$dir"; return ;; esac
    port="$(free_port)" tls_port="$(free_port)"
    # More workers than most test stories have connections, because a worker's connections wait while it runs a script.
    local command=("$flintkv" server --io-threads 4 --console-port 0)
    local options=(--port "$port" --unixsocket "$dir/socket" --dir "$dir" --save ""
        --tls-port "$tls_port" --tls-cert-file "$certs/server.crt" --tls-key-file "$certs/server.key"
        --tls-ca-cert-file "$certs/ca.crt")
    case "$form" in
        ram) ;;
        # A small flash, so that it is filled and collected many times.
        cold) options+=(--flash-path "$flash/$(basename "$dir")" --memory-limit 304mb --ram-limit 256mb
            --debug-tier-mode cold --flash-split-size 1kb) ;;
        redis) command=(redis-server) ;;
        *) echo "no form $form"; return 1 ;;
    esac
    "${command[@]}" "${options[@]}" >"$dir/log" 2>&1 &
    server=$!
    echo "$server" >>"$servers"
    local waits=0
    until listens "$port" && listens "$tls_port"; do
        waits=$((waits + 1))
        if [ "$waits" -gt 1200 ] || ! kill -0 "$server" 2>/dev/null; then
            echo "the server does not start: $(tail -n 3 "$dir/log")"
            return 1
        fi
        sleep 0.05
    done
    export REDIS_HOST=127.0.0.1 REDIS_PORT="$port" REDIS_TLS_PORT="$tls_port" REDIS_SOCKET="$dir/socket" REDIS_CERTS="$certs"
    REDIS_KIND=flintkv
    [ "$form" != redis ] || REDIS_KIND=redis
    export REDIS_KIND REDIS_FORM="$form"
}

# Sets $input: at its end the cluster stops. Clients use the node without the first shard, so scripts without keys run at the other one.
start_cluster() {
    local form="$1" dir="$2" shards=4 host
    [ "$form" = cluster ] || shards=1
    mkfifo "$dir/in"
    # In a session of its own, so that a Ctrl-C does not end it before it has cleaned up.
    FLINTKV="$flintkv" setsid "$cluster" "$shards" --memory-limit 600mb --ram-limit 80% --persistence none -- \
        memory-limit=1gb ram-limit=900mb io-threads=4 <"$dir/in" >"$dir/nodes" 2>"$dir/log" &
    server=$!
    exec {input}>"$dir/in"
    until [ "$(wc -l <"$dir/nodes")" -ge 2 ]; do
        if ! kill -0 "$server" 2>/dev/null; then
            echo "the cluster does not start: $(tail -n 20 "$dir/log")"
            return 1
        fi
        sleep 0.05
    done
    read -r host port < <(tail -n 1 "$dir/nodes")
    export REDIS_HOST="$host" REDIS_PORT="$port" REDIS_TLS_PORT=1 REDIS_SOCKET="$dir/none" REDIS_CERTS="$certs"
    export REDIS_KIND=flintkv REDIS_FORM="$form"
}

# unlisted PROGRAM FORM DIR: the failures that cluster.tsv does not list, or lists in vain.
unlisted() {
    awk -F '\t' -v program="$1" -v form="$2" '
        NR == FNR {
            if (!/^#/ && $1 == form && $2 == program) { family[++count] = $3; error[count] = $4 }
            next
        }
        /^FAIL / {
            known = 0
            for (at = 1; at <= count; at++) {
                if (index($0, family[at] ": ") && index($0, error[at])) { known = 1; seen[at] = 1 }
            }
            if (!known) print
        }
        END {
            for (at = 1; at <= count; at++) {
                if (!seen[at]) print "FAIL " family[at] ": it is listed, and does not fail with: " error[at]
            }
        }' cluster.tsv "$3/out"
}

flash_reads() {
    redis-cli -p "${REDIS_PORT:-1}" info tiering 2>/dev/null | sed -n 's/\r//; s/^flash_kv_reads://p'
}

# one PROGRAM FORM: prints the program's line, then its failures.
one() {
    local program="$1" form="$2" dir="$scratch/$1-$2" started=$SECONDS code=0 server= input= runs=
    mkdir "$dir"
    trap '[ -z "$runs" ] || kill "$runs"; [ -z "$input" ] || { exec {input}>&-; wait "$server"; }; exit 1' TERM
    {
        start "$form" "$dir" && {
            # Without the cluster's input, which must end with this shell.
            ([ -z "$input" ] || exec {input}>&-; exec timeout 400 "$program/run" "$kept/$program") &
            runs=$!
            wait "$runs"
        }
    } >"$dir/out" 2>&1 </dev/null || code=$?
    runs=
    local reads=
    if [ "$form" = cold ] && [ "$code" -ne 3 ]; then
        local count
        count="$(flash_reads)"
        reads=", ${count:-no} values read from flash since its last CONFIG RESETSTAT"
        redis-cli -p "${REDIS_PORT:-1}" set probe 1 >/dev/null 2>&1
        redis-cli -p "${REDIS_PORT:-1}" get probe >/dev/null 2>&1
        if [ "$(flash_reads)" != "$((${count:-0} + 1))" ]; then
            code=2
            echo "FAIL cold: values are not read from flash" >>"$dir/out"
        fi
    fi
    if [ "$code" -ne 3 ] && ! kill -0 "$server" 2>/dev/null; then
        code=1
        echo "the server ended: $(tail -n 5 "$dir/log")" >>"$dir/out"
    fi
    if [ -n "$input" ]; then
        exec {input}>&-
    else
        kill "$server" 2>/dev/null
    fi
    wait "$server" 2>/dev/null
    local total
    total="$(grep -E '^passed [0-9]+, failed [0-9]+' "$dir/out" | tail -n 1)"
    if [ -n "$input" ] && [ -n "$total" ]; then
        local listed
        listed="$(grep -c '^FAIL' "$dir/out")"
        unlisted "$program" "$form" "$dir" >"$dir/unlisted"
        mv "$dir/unlisted" "$dir/out"
        code=0
        [ ! -s "$dir/out" ] || code=1
        total="$total, of which $((listed - $(grep -c '^FAIL' "$dir/out"))) are listed"
    fi
    local verdict=ok
    if [ "$code" -eq 3 ]; then
        verdict=skipped code=0
    elif [ "$code" -ne 0 ]; then
        verdict="FAILED ($code)"
    fi
    echo "$program, $form: $verdict; ${total:-ended before its end}$reads; $((SECONDS - started)) s"
    if grep -q '^FAIL' "$dir/out"; then
        grep '^FAIL' "$dir/out" | cut -c1-400 | sed 's/^/    /' | head -n 100
    fi
    [ -n "$total" ] || tail -n 20 "$dir/out" | cut -c1-400 | sed 's/^/    /'
    return "$code"
}

# prepared PROGRAM OUTPUT: registries fail now and then, so try twice more after a pause.
prepared() {
    local program="$1" output="$2" code pause
    rm -rf "${kept:?}/$program"
    mkdir -p "$kept/$program"
    for pause in 10 30 0; do
        code=0
        "$program/prepare" "$kept/$program" >"$output" 2>&1 </dev/null || code=$?
        if [ "$code" -eq 0 ] || [ "$code" -eq 3 ] || [ "$pause" -eq 0 ]; then
            return "$code"
        fi
        echo "$program: its preparation failed (exit code $code), again in $pause s: $(tail -n 8 "$output" | tr "\n" " ")"
        sleep "$pause"
    done
}

certs="$scratch/certs"
mkdir "$certs"
certificates "$certs" || exit 1

ready=()
failed=0
for program in "${programs[@]}"; do
    # The installed libraries belong to this version of these files.
    stamp="$(cat "$program"/* jvm/* node/* 2>/dev/null | sha256sum)"
    if [ "$(cat "$kept/$program.stamp" 2>/dev/null)" != "$stamp" ]; then
        code=0
        prepared "$program" "$scratch/prepare" || code=$?
        if [ "$code" -ne 0 ]; then
            [ "$code" -eq 3 ] && word=skipped || { word="not prepared (exit code $code)"; failed=1; }
            echo "$program: $word: $(tail -n 8 "$scratch/prepare" | tr "\n" " ")"
            continue
        fi
        echo "$stamp" >"$kept/$program.stamp"
    fi
    ready+=("$program")
done
[ "${#ready[@]}" -gt 0 ] || { [ "$failed" -eq 0 ] && exit 3 || exit 1; }

# A program waits most of its time, so run two for each core.
slots="$(($(nproc) * 2))"
for program in "${ready[@]}"; do
    for form in $forms; do
        while [ "$(jobs -rp | wc -l)" -ge "$slots" ]; do
            wait -n
        done
        { one "$program" "$form" || touch "$scratch/failed"; } &
    done
done
wait
[ "$failed" -eq 0 ] && [ ! -e "$scratch/failed" ]
