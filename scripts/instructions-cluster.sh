# shellcheck shell=bash
# A part of instructions.sh: counts what a command costs in a cluster of two nodes with data and one member of etcd, the instructions of both
# nodes' workers together. A database of one shard lies on one of the nodes, so clients of that node find the owner there, and clients of the other
# one never do. Prints what a command costs beyond one of a node's own database, and beyond that what the cipher of the link costs; and what a command
# costs the primary of a shard that has a replica on the other node: take --ratio 1:0 for that, since reads are not replicated.
# Starts the nodes twice: with peer-tls no and yes.

scripts/need.sh etcd
member_host() { echo "127.77.$((port % 250)).$1"; }

# member_conf NUMBER PEER-TLS: without a slow log, because in valgrind what waits for another node is slow.
member_conf() {
    local dir="$scratch/n$1" host
    host="$(member_host "$1")"
    mkdir -p "$dir"
    cat >"$dir/flintkv.conf" <<CONF
dir $dir
state-dir $dir/state
bind $host
port 6379
console-bind $host
console-password $member_password
io-threads 1
save ""
appendonly no
memory-limit 256mb
ram-limit 256mb
proxy-ram 256mb
peer-tls $2
slowlog-log-slower-than -1
CONF
}

# begin_member NUMBER: `flintkv server` in valgrind, which counts nothing yet.
begin_member() {
    (cd "$scratch/n$1" && exec valgrind --fair-sched=yes --tool=callgrind --instr-atstart=no --separate-threads=yes --callgrind-out-file="$scratch/n$1/profile" \
        "$load" server flintkv.conf) >"$scratch/n$1/log" 2>&1 &
    members[$1]=$!
}

operate() { FLINTKV_URL="http://$(member_host 1):8379" FLINTKV_USER=admin FLINTKV_PASSWORD="$member_password" "$load" "$@"; }

# until_ready WHAT COMMAND ...: waits until the command succeeds.
until_ready() {
    local what="$1" attempt
    shift
    for attempt in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.3
    done
    echo "the cluster is not ready, attempt $attempt: $what" >&2
    tail -n 5 "$scratch"/n?/*log >&2
    exit 1
}

# create NAME OPTION ...: a node that has just joined may break off the answer, so the database may be there already.
create() { operate database create "$@" --shards 1 --persistence none || operate database shards "$1"; }
# The node of the database's only shard, or of its primary.
node_of() { operate database shards "$1" --json | sed -n 's/.*"node": *"n\([12]\)".*/\1/p' | head -n 1; }
answers() { operate database shards "$1" --json | grep -q '"trouble": *null'; }
in_sync() { [ "$(operate database shards followed --json | grep -c '"is_in_sync": *true')" = 2 ]; }
listens() { (exec 3<>"/dev/tcp/$1/$2"); }

# dump NUMBER: instructions of each thread since the last dump, the thread's number first.
dump() {
    rm -f "$scratch/n$1"/profile.*
    callgrind_control --dump "${members[$1]}" >/dev/null 2>&1
    for file in "$scratch/n$1"/profile.*-*; do echo "${file##*-} $(sed -n 's/^totals: *\([0-9]*\).*/\1/p' "$file")"; done
}

# Only the workers are counted: the threads beside them, which follow etcd and answer the console, have nothing to do with commands, and
# do so much by the clock that a busy machine would show it in the figures.
declare -A worker
find_workers() {
    local number
    for number in 1 2; do callgrind_control --instr=on "${members[$number]}" >/dev/null 2>&1; done
    send 11 "$few" "$(member_host "$entry")" 7000
    for number in 1 2; do worker[$number]="$(dump "$number" | sort -n -k 2 | tail -n 1 | cut -d ' ' -f 1)"; done
}

# count_members PIPELINE REQUESTS HOST PORT: instructions of both nodes' workers, and milliseconds. count_owner: of the owner's node alone.
count_members() { count_workers "1 2" "$@"; }
count_owner() { count_workers "$owner" "$@"; }
count_workers() {
    local from number sum=0 counted counting="$1"
    shift
    for number in 1 2; do callgrind_control --zero "${members[$number]}" >/dev/null 2>&1; done
    from=$(date +%s%N)
    send "$@"
    for number in $counting; do
        counted="$(dump "$number" | awk -v thread="${worker[$number]}" '$1 == thread { print $2 }')"
        sum=$((sum + counted))
    done
    echo "$sum $((($(date +%s%N) - from) / 1000000))"
}

# above NAME BASE ...: the last row less the row whose figures are given, in the order of the pipelines.
above() {
    local name="$1" cells=() pipeline
    shift
    for pipeline in $pipelines; do
        cells+=("$((row[$pipeline] - $1))")
        shift
    done
    line "$name" "${cells[@]}"
}
# of_alone NAME BASE ...: the last row ÷ the row whose figures are given.
of_alone() {
    local name="$1" cells=() pipeline
    shift
    for pipeline in $pipelines; do
        cells+=("$(awk -v a="${row[$pipeline]}" -v b="$1" 'BEGIN { printf "%.3f", a / b }')")
        shift
    done
    line "$name" "${cells[@]}"
}
figures() { for pipeline in $pipelines; do echo "${row[$pipeline]}"; done; }

next_port
member_password="$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n')"
entry=
for tls in no yes; do
    for number in 1 2; do
        member_conf "$number" "$tls"
        begin_member "$number"
    done
    if [ "$tls" = no ]; then
        (cd "$scratch/n1" && exec "$load" coordinator flintkv.conf) >"$scratch/n1/coordinator.log" 2>&1 &
        members[3]=$!
        until_ready "the first node listens" listens "$(member_host 1)" 8379
        operate cluster init counted --conf "$scratch/n1/flintkv.conf" --address "$(member_host 1)" --name n1 --zone a >/dev/null
        until_ready "a token for the second node" operate cluster token --no-coordinator --json
        token="$(operate cluster token --no-coordinator --json | sed -n 's/.*"token": *"\(fkj1[0-9a-f]*\)".*/\1/p')"
        until_ready "the second node listens" listens "$(member_host 2)" 8379
        FLINTKV_JOIN_TOKEN="$token" FLINTKV_URL="http://$(member_host 2):8379" FLINTKV_USER=admin FLINTKV_PASSWORD="$member_password" \
            "$load" cluster join "$(member_host 1)" --conf "$scratch/n2/flintkv.conf" --address "$(member_host 2)" --name n2 --zone b >/dev/null
        until_ready "a database is made" create counted --port 7000 --memory-limit 64mb --ram-limit 64mb
    fi
    until_ready "the shard answers" answers counted
    for number in 1 2; do until_ready "node $number serves the database" listens "$(member_host "$number")" 7000; done
    if [ -z "$entry" ]; then
        owner=$(node_of counted)
        entry=$((3 - owner))
    fi
    # The first commands wait until the shard is served and the link is there.
    until_ready "commands reach the shard" "$load" bench -h "$(member_host "$entry")" -p 7000 -t 1 -c 1 -n 100 --hide-histogram
    find_workers
    if [ "$tls" = no ]; then
        row "a member of a cluster: a database of its own" count_members "$(member_host "$owner")" 6379
        mapfile -t own < <(figures)
        row "a cluster's database, owner on the same node" count_members "$(member_host "$owner")" 7000
        above "  beyond a database of the node's own" "${own[@]}"
        row "  the owner alone" count_owner "$(member_host "$owner")" 7000
        mapfile -t alone < <(figures)
        until_ready "a database with a replica is made" create followed --port 7001 --memory-limit 256mb --ram-limit 256mb --replicas 1 --replication async
        until_ready "the shard with a replica answers" answers followed
        until_ready "its replica is in sync" in_sync
        counted_on="$owner" owner="$(node_of followed)"
        # A slow machine in valgrind would fill the slow log.
        exec 3<>"/dev/tcp/$(member_host "$owner")/7001"
        printf 'CONFIG SET slowlog-log-slower-than -1\r\n' >&3
        read -r -t 60 _ <&3
        row "  a shard's primary with a replica" count_owner "$(member_host "$owner")" 7001
        of_alone "  ratio" "${alone[@]}"
        owner="$counted_on"
        operate database delete followed --yes followed >/dev/null
        row "owner on the other node, peer-tls no" count_members "$(member_host "$entry")" 7000
        above "  beyond a database of the node's own" "${own[@]}"
        mapfile -t plain < <(figures)
        for number in 1 2; do
            kill "${members[$number]}"
            wait "${members[$number]}" || true
        done
    else
        row "owner on the other node, peer-tls yes" count_members "$(member_host "$entry")" 7000
        above "  the cipher" "${plain[@]}"
        mapfile -t sealed < <(figures)
        cells=()
        for index in "${!sealed[@]}"; do cells+=("$(awk -v all=$((sealed[index] - plain[index])) 'BEGIN { printf "%.1f", all / 500 }')"); done
        line "  the cipher, a byte of the values" "${cells[@]}"
    fi
done
