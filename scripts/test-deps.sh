#!/usr/bin/env bash
# Installs what the tests need and the machine lacks: a C compiler, Debian's redis-server, redis-tools, etcd-server, etcd-client and libfaketime, Python and
# Node for tests/clients, Go and nftables for tests/failover-runs, Tcl for tests/redis, XFS, a browser for tests/console, and the tools that make a fresh Debian for tests/packages.
# usage: scripts/test-deps.sh [--all]   --all: the languages of all client libraries too
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
command -v cc >/dev/null || packages+=(build-essential)
command -v redis-server >/dev/null || packages+=(redis-server)
{ command -v redis-cli && command -v redis-benchmark; } >/dev/null || packages+=(redis-tools)
command -v etcd >/dev/null || packages+=(etcd-server)
command -v etcdctl >/dev/null || packages+=(etcd-client)
compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || compgen -G '/usr/lib/faketime/libfaketimeMT.so.1' >/dev/null || packages+=(libfaketime)
command -v openssl >/dev/null || packages+=(openssl)
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3 python3-venv)
{ command -v node && command -v npm; } >/dev/null || packages+=(nodejs npm)
command -v go >/dev/null || packages+=(golang-go)
command -v nft >/dev/null || packages+=(nftables)
if [ "${1:-}" = --all ]; then
    command -v javac >/dev/null || packages+=(default-jdk-headless)
    command -v mvn >/dev/null || packages+=(maven)
fi
command -v debootstrap >/dev/null || packages+=(debootstrap)
command -v ip >/dev/null || packages+=(iproute2)
command -v dpkg-shlibdeps >/dev/null || packages+=(dpkg-dev)
python3 -c "import yaml" 2>/dev/null || packages+=(python3-yaml)
command -v mkfs.xfs >/dev/null || packages+=(xfsprogs)
command -v tclsh >/dev/null || packages+=(tcl)
# Not every release has the browser of tests/console, and without it that test is skipped. It is installed here because scripts
# that run side by side cannot both install.
browser=()
if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }; then
    browser+=(chromium)
fi

if [ "${#packages[@]}" -gt 0 ] || [ "${#browser[@]}" -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "please install with this system's package manager: ${packages[*]}" >&2
        exit 1
    fi
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "please install as root: apt-get install ${packages[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    echo "installing ${packages[*]} ${browser[*]}"
    "${as_root[@]}" apt-get update -qq
    # RUNLEVEL=1 keeps Debian's services from starting, because the tests start their own servers.
    install=("${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
    [ "${#packages[@]}" -eq 0 ] || "${install[@]}" "${packages[@]}" >/dev/null
    [ "${#browser[@]}" -eq 0 ] || "${install[@]}" "${browser[@]}" >/dev/null || echo "${browser[*]} is not installed" >&2
fi

scripts/need.sh cargo cc redis-server redis-cli redis-benchmark etcd

# rustup adds these components if they are missing; a toolchain that is not rustup's must already have them.
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    command -v rustup >/dev/null || { echo "cargo lacks rustfmt or clippy, and there is no rustup to add them" >&2; exit 1; }
    rustup component add rustfmt clippy
fi
