#!/usr/bin/env bash
# The Debian package on a fresh Debian: installed, started, upgraded, removed, purged. Then the Dockerfile's last stage.
#
# The package holds the debug build of $FLINTKV: what is tested is the package, not the compiler.
# The fresh Debian is debootstrap's minbase of this machine's release, from the mirror that apt uses here; it is kept in
# the target directory. It runs in namespaces of its own: processes, mounts and network end with the test, and the ports
# are the configuration's. There is no systemd inside: the unit's ExecStart runs as its user with
# NOTIFY_SOCKET set, and systemd-analyze reads the unit where it is installed.
#
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if it cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."

flintkv="$(realpath "${FLINTKV:-target/debug/flintkv}")"
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
kept="$target/packages"
. /etc/os-release

cannot() {
    echo "cannot run here: $*"
    exit 3
}

if [ -z "${INSIDE:-}" ]; then
    [ -x "$flintkv" ] || { echo "no binary at $flintkv: cargo build, or set FLINTKV" >&2; exit 1; }
    [ "${ID:-}" = debian ] || cannot "this is not Debian, on which the binary was to be installed"
    [ "$(id -u)" -eq 0 ] || cannot "only root may make a system in a directory"
    for tool in debootstrap ip redis-cli dpkg-shlibdeps; do
        command -v "$tool" >/dev/null || cannot "there is no $tool"
    done
    unshare --mount --pid --net --fork true 2>/dev/null || cannot "namespaces are not allowed"
    mkdir -p "$kept"
    scratch="$(mktemp -d "$kept/run.XXXXXX")"
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 1' INT TERM

    # Done in parallel with building the package, because it waits for the network.
    base="$kept/$VERSION_CODENAME"
    if [ ! -d "$base" ]; then
        mirror="$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' "Created-By: Packages" |
            awk -v release="$VERSION_CODENAME" '$2 == release && $3 == "main" && $4 == "Debian" { print $1; exit }')"
        [ -n "$mirror" ] || cannot "apt has no mirror of $VERSION_CODENAME"
        echo "debootstrap: a minimal $VERSION_CODENAME"
        debootstrap --variant=minbase "$VERSION_CODENAME" "$scratch/base" "$mirror" >"$scratch/debootstrap" 2>&1 &
        debootstrap=$!
    fi
    mkdir "$scratch/deb"
    CARGO_TARGET_DIR="$target" PROFILE=dev packaging/build-deb.sh --no-build --fast --output "$scratch/deb/flintkv.deb" | tail -n 1
    # The sources of cargo install contain the built console, so they need no Node.
    CARGO_TARGET_DIR="$scratch/crates" cargo package --quiet --workspace --no-verify --allow-dirty --exclude flintkv-tests --exclude flintkv-seeds
    tar -tzf "$scratch"/crates/package/flintkv-api-*.crate | sed -n 's|^[^/]*/||p' >"$scratch/packaged"
    (cd crates/api && find console-dist -type f) | while read -r file; do
        grep -qxF "$file" "$scratch/packaged" || { echo "FAIL the source package has no $file"; exit 1; }
    done
    if [ -n "${debootstrap:-}" ]; then
        wait "$debootstrap" || { tail -n 5 "$scratch/debootstrap"; cannot "debootstrap failed"; }
        mv "$scratch/base" "$base"
    fi
    cp -a "$base" "$scratch/root"
    cp -a "$base" "$scratch/image"
    cp "$flintkv" "$scratch/flintkv"
    INSIDE="$scratch" FLINTKV="$flintkv" unshare --mount --pid --net --fork --kill-child "$0"
    exit
fi

# ---- Inside: process 1 of its own namespace.
scratch="$INSIDE" root="$INSIDE/root"
ip link set lo up
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
unit="$root/lib/systemd/system/flintkv.service"

fail() {
    echo "FAIL $*"
    [ ! -s "$scratch/log" ] || { echo "the server's log:"; tail -n 20 "$scratch/log"; }
    exit 1
}

# expect WHAT COMMAND ...: the command's output must be WHAT.
expect() {
    local wanted="$1" got
    shift
    got="$("$@" 2>&1)" || true
    [ "$got" = "$wanted" ] || fail "$*: \"$got\", not \"$wanted\""
}

inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

apt() {
    inside apt-get -qq -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" >"$scratch/apt" 2>&1 ||
        { cat "$scratch/apt"; fail "apt-get $*"; }
}

# Every file except those of dpkg, apt and adduser.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./run -o -path './etc/*-' -o -path ./var/cache \
        -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/log/dpkg.log -o -path ./var/log/apt \) -prune -o -print | sort)
}

# start: runs the unit's command as its user. Returns when the node reports readiness to systemd.
start() {
    local command user
    command="$(sed -n 's/^ExecStart=//p' "$unit")"
    user="$(sed -n 's/^User=//p' "$unit")"
    : >"$scratch/told"
    python3 - "$scratch/told" <<'PYTHON' &
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind("\0flintkv-packages")
with open(sys.argv[1], "w", buffering=1) as told:
    while True:
        state = manager.recv(4096).decode()
        told.write(state + "\n")
        if "STOPPING=1" in state:
            break
PYTHON
    manager=$!
    until grep -q flintkv-packages /proc/net/unix; do sleep 0.02; done
    chroot --userspec="$user:$user" "$root" env -i PATH=/usr/bin:/bin NOTIFY_SOCKET=@flintkv-packages \
        sh -c "cd /var/lib/flintkv && exec $command" >"$scratch/log" 2>&1 &
    server=$!
    local deadline=$((SECONDS + 60))
    until grep -q '^READY=1$' "$scratch/told"; do
        kill -0 "$server" 2>/dev/null || fail "the server ended instead of starting"
        [ "$SECONDS" -lt "$deadline" ] || fail "READY=1 was not said within a minute"
        sleep 0.02
    done
    expect PONG redis-cli ping
}

stop() {
    kill "$server"
    wait "$server" || fail "the server ended with code $? on SIGTERM"
    wait "$manager"
    grep -q '^STOPPING=1$' "$scratch/told" || fail "STOPPING=1 was not said"
}

echo "==> the unit"
files >"$scratch/before"
cp "$scratch/deb/flintkv.deb" "$root/tmp/flintkv.deb"
apt install /tmp/flintkv.deb
if command -v systemd-analyze >/dev/null; then
    for name in flintkv flintkv-coordinator; do
        # A system without systemd has no sysinit.target.
        said="$(systemd-analyze verify --man=no --root="$root" "$name.service" 2>&1 | grep flintkv | grep -v sysinit.target || true)"
        [ -z "$said" ] || fail "systemd-analyze verify: $said"
        # The limit is slightly above the current value. A unit without any hardening has 10.
        systemd-analyze security --offline=true --root="$root" --threshold=25 --no-pager "$name.service" >"$scratch/security" 2>&1 ||
            { cat "$scratch/security"; fail "the unit's exposure is too high"; }
        tail -n 1 "$scratch/security"
    done
    systemd-analyze syscall-filter @system-service | grep -q '@aio' || fail "@system-service has no @aio"
else
    echo "not verified: there is no systemd-analyze here"
fi

echo "==> install"
version="$(inside flintkv --version | head -n 1)"
inside flintkv licences | cmp -s - "$root/usr/share/doc/flintkv/NOTICE" || fail "the package has not the licences of what is in its binary"
expect "flintkv:/var/lib/flintkv" sh -c "getent -s files passwd >/dev/null; sed -n 's/^\(flintkv\):.*:\(.*\):.*/\1:\2/p' '$root/etc/passwd'"
expect "flintkv flintkv 750" inside stat -c '%U %G %a' /var/lib/flintkv
expect "flintkv flintkv 750" inside stat -c '%U %G %a' /etc/flintkv
expect "flintkv flintkv 640" inside stat -c '%U %G %a' /etc/flintkv/flintkv.conf
expect /lib/systemd/system/flintkv.service inside readlink /etc/systemd/system/multi-user.target.wants/flintkv.service
[ -e "$root/lib/systemd/system/flintkv-coordinator.service" ] || fail "there is no unit of the coordinator"
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/flintkv-coordinator.service" ] || fail "the coordinator is enabled"
for file in usr/share/man/man1/flintkv.1.gz usr/share/man/man5/flintkv.conf.5.gz usr/share/bash-completion/completions/flintkv \
    usr/share/zsh/vendor-completions/_flintkv usr/share/fish/vendor_completions.d/flintkv.fish \
    usr/share/doc/flintkv/copyright etc/logrotate.d/flintkv; do
    [ -s "$root/$file" ] || fail "there is no /$file"
done
bash -n "$root/usr/share/bash-completion/completions/flintkv" || fail "the completions are no bash"

echo "==> start"
echo "console-password a-password-for-this-test" >>"$root/etc/flintkv/flintkv.conf"
start
export FLINTKV_URL=http://127.0.0.1:8379 FLINTKV_USER=admin FLINTKV_PASSWORD=a-password-for-this-test
"$scratch/flintkv" database create sessions --memory-limit 64mb --ram-limit 64mb --port 7000 >"$scratch/created" 2>&1 ||
    { cat "$scratch/created"; fail "flintkv database create"; }
expect PONG redis-cli -p 7000 ping
expect "process_supervised:systemd" sh -c "redis-cli info server | tr -d '\r' | grep process_supervised"
expect "executable:/usr/bin/flintkv" sh -c "redis-cli info server | tr -d '\r' | grep '^executable'"
expect OK redis-cli set greeting hello
expect OK redis-cli config set maxclients 500
expect OK redis-cli config rewrite
expect "flintkv flintkv 640" inside stat -c '%U %G %a' /etc/flintkv/flintkv.conf
stop

echo "==> upgrade"
inside sh -c 'echo kept >/var/lib/flintkv/data && chown flintkv: /var/lib/flintkv/data && chmod 0700 /etc/flintkv'
dpkg-deb -R "$scratch/deb/flintkv.deb" "$scratch/next"
sed -i 's/^Version: .*/Version: 999.0.0-1/' "$scratch/next/DEBIAN/control"
echo "# of the next release" >>"$scratch/next/etc/flintkv/flintkv.conf"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$scratch/next" "$root/tmp/next.deb" >/dev/null
apt install /tmp/next.deb
expect 999.0.0-1 inside dpkg-query -W -f '${Version}' flintkv
grep -q '^maxclients 500$' "$root/etc/flintkv/flintkv.conf" || fail "the changed configuration was not kept"
expect "# of the next release" tail -n 1 "$root/etc/flintkv/flintkv.conf.dpkg-dist"
expect "flintkv flintkv 640" inside stat -c '%U %G %a' /etc/flintkv/flintkv.conf
expect "flintkv flintkv 700" inside stat -c '%U %G %a' /etc/flintkv
expect kept inside cat /var/lib/flintkv/data
start
expect "$(printf 'maxclients\n500')" redis-cli config get maxclients
expect PONG redis-cli -p 7000 ping
stop

echo "==> remove"
apt remove flintkv
[ ! -e "$root/usr/bin/flintkv" ] || fail "the binary is still there"
[ ! -e "$unit" ] || fail "the unit is still there"
grep -q '^maxclients 500$' "$root/etc/flintkv/flintkv.conf" || fail "removing took the configuration away"
expect kept inside cat /var/lib/flintkv/data

echo "==> install again, purge"
apt install /tmp/flintkv.deb
grep -q '^maxclients 500$' "$root/etc/flintkv/flintkv.conf" || fail "installing again replaced the configuration"
expect kept inside cat /var/lib/flintkv/data
apt purge flintkv
files >"$scratch/after"
left="$(comm -13 "$scratch/before" "$scratch/after")"
[ -z "$left" ] || fail "purging left behind: $left"
expect "" inside getent passwd flintkv

echo "==> the image"
# There is no container engine, so run the commands of the last stage by hand, in an equally slim system.
root="$scratch/image"
mount -t proc proc "$root/proc"
image="$(awk '/^FROM/ { text = "" } { text = text $0 "\n" } END { printf "%s", text }' Dockerfile)"
# instruction NAME: the instruction's text, with continuation lines and without comments.
instruction() {
    awk -v name="$1" '$1 == name { on = 1 } on && !/^ *#/ { print } on && !/\\$/ { exit }' <<<"$image" | sed "1s/^$1 *//"
}
# words: a JSON array at the end of the input becomes words for the shell.
words() {
    python3 -c 'import json, shlex, sys; text = sys.stdin.read(); print(shlex.join(json.loads(text[text.index("["):])))'
}
inside sh -ec "$(instruction RUN)"
cp "$scratch/flintkv" "$root/usr/bin/flintkv"
grep -q "^COPY .*NOTICE.*/usr/share/doc/flintkv/" <<<"$image" || fail "the image has no NOTICE"
eval "$(sed -n 's|^ *&& \({ sed .* }\) >/src/container.conf$|\1|p' Dockerfile)" >"$root/etc/flintkv/flintkv.conf"
grep -qx 'dir /data' "$root/etc/flintkv/flintkv.conf" || fail "the image's configuration is not made"
user="$(instruction USER)"
healthy() {
    chroot --userspec="$user" "$root" env -i PATH=/usr/bin:/bin sh -c "$(instruction HEALTHCHECK | words)" 2>/dev/null
}
! healthy || fail "the image is healthy without a server"
chroot --userspec="$user" "$root" env -i PATH=/usr/bin:/bin \
    sh -c "cd $(instruction WORKDIR) && exec $(instruction ENTRYPOINT | words) --requirepass secret --memory-limit 160mb --ram-limit 96mb --flash-path /flash" \
    >"$scratch/log" 2>&1 &
server=$!
deadline=$((SECONDS + 60))
until healthy; do
    kill -0 "$server" 2>/dev/null || fail "the image's server ended instead of starting"
    [ "$SECONDS" -lt "$deadline" ] || fail "the image is not healthy within a minute"
    sleep 0.1
done
expect PONG redis-cli --no-auth-warning -a secret ping
expect "process_supervised:no" sh -c "redis-cli --no-auth-warning -a secret info server | tr -d '\r' | grep process_supervised"
kill -"$(instruction STOPSIGNAL)" "$server"
wait "$server" || fail "the image's server ended with code $?"

echo "$version, as a package and as an image: well"
