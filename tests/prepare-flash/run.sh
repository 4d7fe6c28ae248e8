#!/usr/bin/env bash
# flintkv prepare-flash on loop devices: refused devices do not change, confirmed devices are formatted, mounted and
# measured. Exit code 3 without loop devices: they need root, /dev/loop-control and mount.
set -uo pipefail

flintkv="${FLINTKV:?the binary}"
scratch="$(mktemp -d)"
scratch="$(realpath "$scratch")"
loops=() holder='' node='' probe=''

# retried COMMAND...: repeats the command until it succeeds, for up to a minute. The kernel releases a killed process's files some
# time after the process ends, because it destroys the io_uring in the background.
retried() {
    local deadline=$((SECONDS + 60))
    until "$@" 2>/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

# The mounts below the scratch directory, latest first.
mounted() {
    local point
    while read -r _ point _; do
        # /proc writes a space as \040.
        point="$(printf '%b' "$point")"
        case "$point" in "$scratch"/*) printf '%s\n' "$point" ;; esac
    done </proc/self/mounts | tac
}

# Asks the kernel what is still attached and mounted, so that it works wherever the test ends.
cleanup() {
    trap '' INT TERM HUP
    local pid point file loop
    for pid in $holder $node $probe; do kill -KILL "$pid" && wait "$pid"; done 2>/dev/null
    while read -r point; do
        retried umount "$point" || umount --lazy "$point"
    done < <(mounted)
    for file in "$scratch"/disk-*; do
        for loop in $(losetup --noheadings --output NAME --associated "$file" 2>/dev/null); do
            swapoff "$loop" 2>/dev/null
            retried losetup --detach "$loop" || echo "$loop stays attached"
        done
    done
    # This would delete the files of a remaining mount.
    [ -n "$(mounted)" ] || rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

skip() { echo "prepare-flash: not run here: $1"; exit 3; }
fail() {
    echo "FAIL: $1"
    [ -f "$scratch/said" ] && sed 's/^/    /' "$scratch/said"
    exit 1
}

# device MEGABYTES: a loop device over a file, in $loop
device() {
    local file="$scratch/disk-${#loops[@]}"
    truncate --size "$1M" "$file"
    loop="$(losetup --find --show "$file" 2>"$scratch/said")" || return 1
    loops+=("$loop")
}

# refused CODE WORDS ARGUMENTS...: the command must exit with CODE and print WORDS
refused() {
    local expected="$1" words="$2" code=0
    shift 2
    "$flintkv" prepare-flash "$@" </dev/null >"$scratch/said" 2>&1 || code=$?
    [ "$code" -eq "$expected" ] || fail "exit code $code instead of $expected: $*"
    grep -qF -- "$words" "$scratch/said" || fail "it did not say \"$words\": $*"
}

json() { python3 -c "import json,sys; d=json.load(open('$scratch/out')); print($1)"; }

[ "$(id -u)" -eq 0 ] || skip "it takes root"
for tool in losetup mount umount wipefs blkid mkfs.ext4 python3; do
    command -v "$tool" >/dev/null || skip "$tool is missing"
done
device 400 || skip "no loop devices: $(cat "$scratch/said")"
first="$loop"
mkfs.ext4 -q -F -L photos "$first" || fail "mkfs.ext4"
mkdir "$scratch/used"
mount "$first" "$scratch/used" 2>"$scratch/said" && umount "$scratch/used" ||
    skip "nothing can be mounted: $(cat "$scratch/said")"
device 400 && second="$loop" || fail "a second loop device"

echo "what a device is and holds is shown"
"$flintkv" prepare-flash --check "$first" >"$scratch/said" 2>&1 || fail "--check"
grep -qF "ext4 labelled photos" "$scratch/said" || fail "what is on it"
grep -qF "can be formatted" "$scratch/said" || fail "whether it can be formatted"

echo "without a confirmation that names every device nothing is changed"
refused 2 "not confirmed" "$first"
refused 2 "not confirmed" "$first" "$second" --yes "$first"
refused 2 "is not one of the devices" "$first" --yes /dev/null
refused 2 "given twice" "$first" "$first" --yes "$first"
echo "$second" | script -qec "$flintkv prepare-flash $first" /dev/null >"$scratch/said" 2>&1 && fail "another name was taken"
grep -qF "the names do not match" "$scratch/said" || fail "another name typed"
[ "$(blkid -p -s LABEL -o value "$first")" = photos ] || fail "the device was changed"

echo "what is in use is refused, however it is confirmed"
mount "$first" "$scratch/used" || fail "mount"
echo precious >"$scratch/used/file"
refused 2 "is mounted at $scratch/used" "$first" --yes "$first"
refused 2 "is mounted at $scratch/used" "$second" "$first" --yes "$second" --yes "$first"
[ "$(cat "$scratch/used/file")" = precious ] || fail "the mounted device was changed"
retried umount "$scratch/used" || fail "umount"
if mkswap "$second" >/dev/null 2>&1 && swapon "$second" 2>/dev/null; then
    refused 2 "is swap" "$second" --yes "$second"
    swapoff "$second"
fi
# A holder that neither /proc nor blkid shows: the device is open exclusively.
python3 - "$second" "$scratch" <<'PY' &
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
open(sys.argv[2] + "/held", "w").close()
while not os.path.exists(sys.argv[2] + "/release"):
    time.sleep(0.02)
PY
holder=$!
retried test -e "$scratch/held" || fail "nothing holds the device"
refused 2 "in use" "$second" --yes "$second"
touch "$scratch/release"
wait "$holder"
holder=
# A member of an array that is not assembled: version 1.2 of md's superblock, 4 KB from the start.
python3 - "$second" <<'PY'
import struct, sys
with open(sys.argv[1], "r+b") as disk:
    block = bytearray(256)
    struct.pack_into("<II", block, 0, 0xA92B4EFC, 1)
    struct.pack_into("<Q", block, 144, 8)
    total = sum(struct.unpack("<64I", block))
    struct.pack_into("<I", block, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    disk.seek(4096)
    disk.write(block)
PY
wipefs --all --types swap "$second" >/dev/null
refused 2 "linux_raid_member" "$second" --yes "$second"
wipefs --all --force "$second" >/dev/null

echo "two devices, confirmed: formatted, mounted, in fstab, measured"
printf 'UUID=1 / ext4 defaults 0 1\n' >"$scratch/fstab"
points=("$scratch/flash a" "$scratch/flash-b")
"$flintkv" prepare-flash "$first" "$second" --yes "$second" --yes "$first" --filesystem ext4 --fstab="$scratch/fstab" \
    --mount "${points[0]}" --mount "${points[1]}" --seconds 1 --size 64mb --json </dev/null >"$scratch/out" 2>"$scratch/said" ||
    fail "it does not format what is confirmed"
for at in 0 1; do
    device="${loops[$at]}" point="${points[$at]}"
    grep -qF "$device " /proc/self/mounts || fail "$device is not mounted"
    [ "$(blkid -p -s UUID -o value "$device")" = "$(json "d['formatted'][$at]['uuid']")" ] || fail "the UUID of $device"
    [ "$(json "d['directories'][$at]['directory']")" = "$point" ] || fail "$point was not measured"
    [ "$(json "d['directories'][$at]['reads'][4]['reads_per_second'] > 0")" = True ] || fail "no reads at $point"
    [ -z "$(ls -A "$point" | grep -v lost+found)" ] || fail "the probe left something in $point"
    grep -qF "$(json "d['formatted'][$at]['fstab_line']")" "$scratch/fstab" || fail "fstab lacks $point"
done
[ "$(cat "$scratch/fstab.before-flintkv-0")" = "UUID=1 / ext4 defaults 0 1" ] || fail "fstab as it was"
grep -q 'photos' <(blkid -p "$first") && fail "the old label is still there"

echo "a second time: in use, by itself"
refused 2 "is mounted at" "$first" --yes "$first"

echo "fstab's line mounts it again"
retried umount "${points[0]}" || fail "umount"
mount --fstab "$scratch/fstab" "${points[0]}" 2>"$scratch/said" || fail "fstab's line is not understood"

echo "the recommended lines start a node"
json "d['conf']" >"$scratch/flintkv.conf"
cat >>"$scratch/flintkv.conf" <<CONF
port 0
unixsocket $scratch/sock
dir $scratch
logfile $scratch/node.log
CONF
"$flintkv" server "$scratch/flintkv.conf" --io-threads 2 >"$scratch/said" 2>&1 &
node=$!
started_or_ended() { [ -S "$scratch/sock" ] || ! kill -0 "$node"; }
retried started_or_ended
[ -S "$scratch/sock" ] || { cat "$scratch/node.log" >>"$scratch/said" 2>/dev/null; fail "the node does not start"; }
kill "$node"
wait "$node"
node=

echo "interrupted: nothing is left behind"
# On a device of its own: the node's log fills the other two, and its space is freed some time after the node ends.
device 400 || fail "a third loop device"
point="$scratch/interrupted"
mkdir "$point"
{ mkfs.ext4 -q -F "$loop" && mount "$loop" "$point"; } >"$scratch/said" 2>&1 || fail "a third file system"
"$flintkv" prepare-flash "$point" --seconds 600 --size 64mb </dev/null >"$scratch/said" 2>&1 &
probe=$!
probing_or_ended() { ls -l "/proc/$probe/fd" | grep -q 'flintkv-probe.*deleted' || ! kill -0 "$probe"; }
retried probing_or_ended
kill -INT "$probe" 2>/dev/null
code=0
wait "$probe" || code=$?
probe=
[ "$code" -eq 130 ] || fail "exit code $code instead of 130"
ls -A "$point" | grep -q probe && fail "the probe file is still there"

echo "prepare-flash: all is well"
