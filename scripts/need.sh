#!/usr/bin/env bash
# Checks that the named tools are installed, and says how to get missing ones. Installs nothing.
# usage: scripts/need.sh TOOL ...
set -euo pipefail

missing=0
for tool in "$@"; do
    command -v "$tool" >/dev/null && continue
    missing=1
    case "$tool" in
        cargo) how="install Rust: https://rustup.rs, then open a new shell" ;;
        cc) how="install a C compiler: apt-get install build-essential" ;;
        redis-server) how="apt-get install redis-server" ;;
        fio) how="apt-get install fio" ;;
        etcd) how="apt-get install etcd-server" ;;
        redis-cli | redis-benchmark) how="apt-get install redis-tools" ;;
        *) how="install it" ;;
    esac
    echo "$tool is missing: $how" >&2
done
exit "$missing"
