# To be sourced: makes a directory for a demo's flash, whose name is then in $scratch.

# Flash needs a file system on a device that accepts O_DIRECT. A tmpfs is excluded: it is RAM, although it accepts O_DIRECT since
# Linux 6.6.
direct_io() {
    [ "$(stat -f -c %T "$1")" != tmpfs ] || return 1
    dd if=/dev/zero of="$1/probe" bs=4096 count=1 oflag=direct 2>/dev/null
    local code=$?
    rm -f "$1/probe"
    return "$code"
}

# The first candidate is taken.
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
