# To be sourced by the demos: a directory for flash, etcd, connections to a node, and the figures of a scenario.

# Flash needs a file system on a device that accepts O_DIRECT. A tmpfs is excluded: it is RAM, although it accepts O_DIRECT since
# Linux 6.6.
direct_io() {
    [ "$(stat -f -c %T "$1")" != tmpfs ] || return 1
    dd if=/dev/zero of="$1/probe" bs=4096 count=1 oflag=direct 2>/dev/null
    local code=$?
    rm -f "$1/probe"
    return "$code"
}

# Makes a directory for flash, whose name is then in $scratch. The first candidate is taken.
make_scratch() {
    local base candidate
    for base in ./.scratch "${TMPDIR:-/tmp}" /var/tmp; do
        if [ "$base" = ./.scratch ]; then mkdir -p "$base"; fi
        candidate="$(mktemp -d "$base/flintkv-demo.XXXXXX")" || continue
        if direct_io "$candidate"; then
            scratch="$(realpath "$candidate")"
            return
        fi
        rm -rf "$candidate"
    done
    scratch="$(mktemp -d "${TMPDIR:-/tmp}/flintkv-demo.XXXXXX")"
    echo "no directory here is on a device and takes O_DIRECT: flash in $scratch is RAM or goes through the page cache, figures will differ" >&2
}

remove_scratch() {
    if [ -n "$scratch" ]; then
        rm -rf "$scratch"
        rmdir .scratch 2>/dev/null || true
        scratch=""
    fi
}

# Whether etcd is there. Where it is missing and can be installed, Debian's package is; else this says what to install.
have_etcd() {
    if command -v etcd >/dev/null; then return; fi
    local apt=(env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq)
    if [ "$(id -u)" -ne 0 ]; then apt=(sudo -n "${apt[@]}"); fi
    local install=("${apt[@]}" -y --no-install-recommends install etcd-server)
    echo "etcd is missing: installing Debian's etcd-server"
    # RUNLEVEL=1 keeps the package from starting a service of its own.
    if ! "${install[@]}" >/dev/null 2>&1; then
        { "${apt[@]}" update && "${install[@]}"; } >/dev/null 2>&1 || true
    fi
    scripts/need.sh etcd
}

# Whether something listens at this address and port. If another process takes a free port before a node does, the node does not start.
taken() {
    (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null
}

# The first line of the reply to a command.
# usage: ask ADDRESS PORT COMMAND
ask() {
    local reply=""
    exec 3<>"/dev/tcp/$1/$2" || return 1
    printf '%s\r\n' "$3" >&3
    read -r -t 120 reply <&3 || true
    exec 3>&-
    echo "${reply%$'\r'}"
} 2>/dev/null

# A size in bytes, or a number of keys, at the scale.
# usage: scaled NUMBER
scaled() {
    awk -v number="$1" -v scale="$scale" 'BEGIN { split(scale, part, "/"); printf "%d", number * part[1] / (part[2] ? part[2] : 1) }'
}

# The time since a moment, in seconds.
since() {
    awk -v from="$1" -v to="$(date +%s.%N)" 'BEGIN { printf "%.1f s", to - from }'
}

# Operations a second, the average latency in milliseconds and the RAM hit ratio in a scenario's JSON.
figures() {
    awk -F': *|,' '
        /^  "measured"/ { measured = 1 }
        !measured { next }
        $1 ~ /"ops_per_s"/ && ops == "" { ops = $2 }
        $1 ~ /"latency_ms_avg"/ && latency == "" { latency = $2 }
        $1 ~ /"ram_hit_ratio"/ && hits == "" { hits = $2 }
        END { printf "%.0f %.2f %.1f", ops, latency, 100 * hits }' "$1"
}

password="$(od -An -N9 -tx1 /dev/urandom | tr -d ' \n')"
