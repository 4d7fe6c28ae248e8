#!/usr/bin/env bash
# The Debian package on a fresh Debian: installed, started, upgraded, removed, purged. Then the Dockerfile's last stage, and the
# cluster of packaging/docker/compose.yml: its services in the image, its commands in the order in which it has them.
#
# The package holds the debug build of $FLINTKV: what is tested is the package, not the compiler.
# The fresh Debian is debootstrap's minbase of this machine's release, from the mirror that apt uses here; it is kept in
# the target directory. It runs in namespaces of its own: processes, mounts and network end with the test, and the ports
# are the configuration's. There is no systemd inside: the units' ExecStart runs as its user with
# NOTIFY_SOCKET set, and systemd-analyze reads the units where they are installed. There is no container engine either: a container
# is namespaces and a root made by hand, so neither `docker build` nor `docker compose` themselves are run.
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
    for tool in debootstrap ip redis-cli dpkg-shlibdeps dpkg-scanpackages nsenter; do
        command -v "$tool" >/dev/null || cannot "there is no $tool"
    done
    python3 -c 'import yaml' 2>/dev/null || cannot "Python has no yaml: apt-get install python3-yaml"
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
    # The packages that the image installs, as a repository: inside there is no network.
    mkdir -p "$kept/debs-$VERSION_CODENAME"
    (
        cd "$kept/debs-$VERSION_CODENAME"
        for package in $(sed -n 's/.*apt-get install -y --no-install-recommends \(etcd.*\) \\$/\1/p' "$OLDPWD/Dockerfile"); do
            compgen -G "${package}_*.deb" >/dev/null || apt-get download -qq "$package" >/dev/null 2>&1 ||
                { apt-get update -qq && apt-get download -qq "$package"; } || exit 1
        done
        dpkg-scanpackages --multiversion . >Packages 2>/dev/null
    ) || cannot "the image's packages cannot be downloaded"
    mkdir "$scratch/deb"
    CARGO_TARGET_DIR="$target" PROFILE=dev packaging/build-deb.sh --no-build --fast --output "$scratch/deb/flintkv.deb" | tail -n 1
    # The sources of cargo install contain the built console, so they need no Node.
    CARGO_TARGET_DIR="$scratch/crates" cargo package --quiet --workspace --no-verify --allow-dirty --exclude flintkv-tests --exclude flintkv-seeds --exclude flintkv-suite
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
    cp -r "$kept/debs-$VERSION_CODENAME" "$scratch/image/debs"
    cp "$flintkv" "$scratch/flintkv"
    INSIDE="$scratch" FLINTKV="$flintkv" unshare --mount --pid --net --fork --kill-child "$0"
    exit
fi

# ---- Inside: process 1 of its own namespace.
scratch="$INSIDE" root="$INSIDE/root"
# Of this namespace: its numbers of processes are not the machine's.
mount -t proc proc /proc
ip link set lo up
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
units="$root/lib/systemd/system"
roles="flintkv flintkv-coordinator flintkv-quorum"

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

# start [UNIT]: runs the unit's command as its user. Returns when it reports readiness to systemd.
start() {
    local command user name="${1:-flintkv}"
    command="$(sed -n 's/^ExecStart=//p' "$units/$name.service")"
    user="$(sed -n 's/^User=//p' "$units/$name.service")"
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
        kill -0 "$server" 2>/dev/null || fail "$name ended instead of starting"
        [ "$SECONDS" -lt "$deadline" ] || fail "$name did not say READY=1 within a minute"
        sleep 0.02
    done
    [ "$name" != flintkv ] || expect PONG redis-cli ping
}

stop() {
    kill "$server"
    wait "$server" || fail "the server ended with code $? on SIGTERM"
    wait "$manager"
    grep -q '^STOPPING=1$' "$scratch/told" || fail "STOPPING=1 was not said"
}

echo "==> the units"
files >"$scratch/before"
cp "$scratch/deb/flintkv.deb" "$root/tmp/flintkv.deb"
apt install /tmp/flintkv.deb
if command -v systemd-analyze >/dev/null; then
    for name in $roles; do
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
for name in flintkv-coordinator flintkv-quorum; do
    [ -e "$units/$name.service" ] || fail "there is no unit $name"
    [ ! -e "$root/etc/systemd/system/multi-user.target.wants/$name.service" ] || fail "$name is enabled"
done
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
# Both wait until their node inits or joins a cluster. The image, below, is a cluster.
for name in flintkv-coordinator flintkv-quorum; do
    start "$name"
    grep -q '^STATUS=waiting until this node inits or joins' "$scratch/told" || fail "$name does not say that it waits"
    stop
done

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
for name in $roles; do [ ! -e "$units/$name.service" ] || fail "the unit $name is still there"; done
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
echo "deb [trusted=yes] file:/debs ./" >"$root/etc/apt/sources.list"
inside sh -ec "$(instruction RUN)" >"$scratch/run" 2>&1 || { tail -n 20 "$scratch/run"; fail "RUN fails"; }
[ -x "$root/usr/bin/etcd" ] && [ -x "$root/usr/bin/etcdctl" ] || fail "the image has no etcd"
! grep -lzE '^(/usr/bin/)?etcd$' "$root"/proc/[0-9]*/cmdline 2>/dev/null || fail "Debian's etcd was started"
cp "$scratch/flintkv" "$root/usr/bin/flintkv"
# copied FROM TO: the instruction COPY FROM TO.
copied() {
    grep -q "^COPY $1 $2$" <<<"$image" || fail "the image has no COPY $1 $2"
    cp "$1" "$root$2"
}
copied packaging/docker/flintkv-container /usr/bin/flintkv-container
grep -q "^COPY .*NOTICE.*/usr/share/doc/flintkv/" <<<"$image" || fail "the image has no NOTICE"
eval "$(sed -n 's|^ *&& \({ sed .* }\) >/src/container.conf$|\1|p' Dockerfile)" >"$root/etc/flintkv/flintkv.conf"
grep -qx 'dir /data' "$root/etc/flintkv/flintkv.conf" || fail "the image's configuration is not made"
user="$(instruction USER)"
workdir="$(instruction WORKDIR)"

# Containers are a bridge's ends, with the volumes, names and commands that compose.yml gives its services.
compose=packaging/docker/compose.yml
ip link add bridge type bridge
ip addr add 10.77.0.254/24 dev bridge
ip link set bridge up
python3 - $compose "$scratch/services" <<'PYTHON' || fail "$compose is not as it should be"
import os, re, shlex, sys
import yaml

with open(sys.argv[1]) as file:
    text = file.read()
# As compose does it: ${NAME:?message}.
text = re.sub(r"\$\{FLINTKV_PASSWORD:\?[^}]*\}", "a-password-for-this-test", text)
assert "$" not in re.sub(r"(?m)^#.*", "", text), "a variable that is not known here"
whole = yaml.safe_load(text)
volumes, services, ports = set(whole["volumes"]), whole["services"], []
assert list(services) == ["n1", "n2", "n3"]
known = {"image", "build", "restart", "stop_grace_period", "environment", "hostname", "command", "ports", "volumes"}
with open(sys.argv[2], "w") as out:
    for name, service in services.items():
        assert set(service) <= known, f"{name}: {set(service) - known}"
        folder = os.path.join(os.path.dirname(sys.argv[1]), service["build"]["context"])
        assert os.path.exists(os.path.join(folder, "Dockerfile")), folder
        assert service["hostname"] == name and service["image"] == "flintkv" and service["restart"] == "unless-stopped"
        mounts = [mount.split(":") for mount in service["volumes"]]
        for volume, place in mounts:
            # None is used twice.
            volumes.remove(volume)
            assert place in ("/data", "/flash"), place
        ports += [port.rsplit(":", 1)[0] for port in service.get("ports", [])]
        environment = [f"{key}={value}" for key, value in service.get("environment", {}).items()]
        print(name, shlex.quote(" ".join(f"{volume}:{place}" for volume, place in mounts)),
              shlex.quote(shlex.join(environment)), shlex.quote(shlex.join(service["command"])), file=out)
assert not volumes, f"volumes of no service: {volumes}"
assert len(set(ports)) == len(ports) and all(port.startswith("127.0.0.1:") for port in ports), ports
PYTHON
for number in 1 2 3; do echo "10.77.0.$number n$number" >>"$root/etc/hosts"; done

declare -A outer pid environment
number=0
# container NAME ADDRESS VOLUMES COMMAND: process 1 of its own namespaces is the image's entry point.
container() {
    local name="$1" address="$2" volumes="$3" command="$4" entry
    entry="$(instruction ENTRYPOINT | words)"
    # shellcheck disable=SC2016
    unshare --mount --pid --net --uts --fork --kill-child sh -ec '
        root="$1" name="$2" address="$3" volumes="$4" user="$5" command="$6" scratch="$7"
        for volume in $volumes; do
            mkdir -p "$scratch/volumes/${volume%%:*}"
            # As an engine does it: a new volume is as the image has its place.
            [ "$(stat -c %u "$scratch/volumes/${volume%%:*}")" -ne 0 ] || chown --reference="$root${volume#*:}" "$scratch/volumes/${volume%%:*}"
            mount --bind "$scratch/volumes/${volume%%:*}" "$root${volume#*:}"
        done
        mount -t proc proc "$root/proc"
        hostname "$name"
        until ip link show "$name" >/dev/null 2>&1; do sleep 0.02; done
        ip link set lo up
        ip addr add "$address/24" dev "$name"
        ip link set "$name" up
        exec chroot --userspec="$user" "$root" env -i PATH=/usr/bin:/bin sh -c "cd $8 && exec $command"
    ' - "$root" "$name" "$address" "$volumes" "$user" "$entry $command" "$scratch" "$workdir" \
        >"$scratch/$name.log" 2>&1 &
    outer[$name]=$!
    until pid[$name]="$(grep -lsx "PPid:[[:space:]]*${outer[$name]}" /proc/[0-9]*/status)"; do
        kill -0 "${outer[$name]}" 2>/dev/null || logs "the container $name did not start"
        sleep 0.02
    done
    pid[$name]="$(tr -dc '0-9' <<<"${pid[$name]}")"
    ip link add "$name" type veth peer name "bridge-$name"
    ip link set "$name" netns "${pid[$name]}"
    ip link set "bridge-$name" master bridge up
}
# within NAME COMMAND ...: as `docker exec` does it.
within() {
    local name="$1"
    shift
    eval "nsenter --target ${pid[$name]} --mount --pid --net --uts --root --wdns=$workdir --setuid ${user%:*} --setgid ${user#*:} env -i PATH=/usr/bin:/bin ${environment[$name]:-}" '"$@"'
}
healthy() {
    within "$1" sh -c "$(instruction HEALTHCHECK | words)" >/dev/null 2>&1
}
wait_for() {
    local what="$1" deadline=$((SECONDS + 60))
    shift
    until "$@"; do
        for name in "${!outer[@]}"; do kill -0 "${outer[$name]}" 2>/dev/null || logs "the container $name ended"; done
        [ "$SECONDS" -lt "$deadline" ] || logs "within a minute: not $what"
        sleep 0.1
    done
}
logs() {
    for name in "${!outer[@]}"; do
        echo "the log of $name:"
        tail -n 20 "$scratch/$name.log"
    done
    fail "$@"
}
# leave NAME: process 1 gets the signal.
leave() {
    local code=0
    kill -"$(instruction STOPSIGNAL)" "${pid[$1]}"
    wait "${outer[$1]}" || code=$?
    [ "$code" -eq 0 ] || logs "the container $1 ended with code $code"
    unset "outer[$1]"
}

container alone 10.77.0.9 "" "--requirepass secret --memory-limit 160mb --ram-limit 96mb --flash-path /flash"
wait_for "the image is healthy" healthy alone
expect PONG redis-cli -h 10.77.0.9 --no-auth-warning -a secret ping
expect "process_supervised:no" sh -c "redis-cli -h 10.77.0.9 --no-auth-warning -a secret info server | tr -d '\r' | grep process_supervised"
version_within() {
    within "$1" flintkv --version | head -n 1
}
expect "$version" version_within alone
leave alone

echo "==> the cluster of compose.yml"
while read -r line; do
    eval "set -- $line"
    environment[$1]="$3"
    container "$1" "10.77.0.$((number += 1))" "$2" "$4"
done <"$scratch/services"
for name in n1 n2 n3; do wait_for "$name is healthy" healthy "$name"; done
# The commands of the file's first comment. Each token comes from the command before.
token="" steps=0
while read -r _ _ name command; do
    # etcd admits one new member at a time: a step waits until the members that are there vote.
    [ "$steps" -eq 0 ] || wait_for "all members of etcd vote" eval '! within n1 flintkv cluster nodes 2>&1 | grep -Eq "learner|etcd does not answer"'
    words="$(python3 -c 'import shlex, sys; print(shlex.join(sys.argv[1].replace("TOKEN", sys.argv[2]).split()))' "$command" "$token")"
    eval "within $name $words" >"$scratch/said" 2>&1 <<<"of-the-database" || { cat "$scratch/said"; logs "compose exec $name $command"; }
    token="$(grep -o 'fkj1[0-9a-z]*' "$scratch/said" || true)"
    steps=$((steps + 1))
    # The database is created once each node has said what it has.
    [[ $command != *join*quorum* ]] || wait_for "all nodes run" eval 'within n1 flintkv cluster nodes 2>/dev/null |
        awk "/ data .* runs / && !/ 0 B of 0 B/ { data++ } / quorum .* runs / { quorum++ } END { exit !(data == 2 && quorum == 1) }"'
done < <(sed -n 's/^#   \(compose exec .*\)/\1/p' "$compose")
[ "$steps" -eq 6 ] || fail "$compose has $steps commands"
export REDISCLI_AUTH=of-the-database
expect OK redis-cli -h 10.77.0.1 -p 7000 set greeting hello
wait_for "n2 serves the database" eval '[ "$(redis-cli -h 10.77.0.2 -p 7000 get greeting 2>&1)" = hello ]'
for name in n1 n2 n3; do wait_for "$name is healthy" healthy "$name"; done
# etcd's coordinator is started again in a container that goes on.
running() {
    within "$1" sh -c 'grep -lz "^coordinator$" /proc/[0-9]*/cmdline' 2>/dev/null | sed -n 's|/proc/\([0-9]*\)/.*|\1|p'
}
before="$(running n2)"
[ -n "$before" ] || fail "n2 has no coordinator"
within n2 sh -c "kill -KILL $before"
wait_for "n2's coordinator is started again" eval '[ -n "$(running n2)" ] && [ "$(running n2)" != "$before" ]'
expect hello redis-cli -h 10.77.0.2 -p 7000 get greeting
for name in n3 n2 n1; do leave "$name"; done

echo "$version, as a package, as an image and as a cluster of containers: well"
