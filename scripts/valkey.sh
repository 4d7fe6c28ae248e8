#!/usr/bin/env bash
# Runs the tests that use a real Redis with Valkey instead: as primary, as replica, as source of a migration, and with its
# files. Valkey is Debian's package of bookworm-backports, fetched into .scratch and not installed. usage: scripts/valkey.sh
set -euo pipefail
cd "$(dirname "$0")/.."

scratch="$PWD/.scratch/valkey"
mkdir -p "$scratch/bin"
if [ ! -x "$scratch/root/usr/bin/valkey-server" ]; then
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)"
    [ -n "$mirror" ] || { echo "this needs Debian 12 with its package sources" >&2; exit 3; }
    # apt checks the packages' signatures. The machine's package lists do not change.
    mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main" >"$scratch/backports.list"
    apt=(apt-get -qq -o Dir::Etc::sourcelist="$scratch/backports.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=
        -o Dir::State::lists="$scratch/lists" -o Dir::Cache="$scratch/cache")
    "${apt[@]}" update
    (cd "$scratch" && "${apt[@]}" download valkey-server valkey-tools)
    for package in "$scratch"/valkey-*.deb; do
        dpkg -x "$package" "$scratch/root"
    done
fi
for tool in server cli benchmark check-aof check-rdb; do
    ln -sf "$scratch/root/usr/bin/valkey-$tool" "$scratch/bin/redis-$tool"
done
export PATH="$scratch/bin:$PATH"
redis-server --version
cargo test --quiet -p flintkv-node --test node -- replica migrate files::
cargo test --quiet -p flintkv-tests --test replication --test migrate
