#!/usr/bin/env bash
# The tests with a real Redis beside FlintKV, with Valkey in its place: as primary, as replica, as source of a migration, and its files.
# Valkey is Debian's package of bookworm-backports, fetched into .scratch and not installed.
# usage: scripts/valkey.sh
set -euo pipefail
cd "$(dirname "$0")/.."

scratch="$PWD/.scratch/valkey"
mkdir -p "$scratch/bin"
if [ ! -x "$scratch/root/usr/bin/valkey-server" ]; then
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)"
    [ -n "$mirror" ] || { echo "this needs Debian 12 with its package sources" >&2; exit 3; }
    index="$(mktemp)"
    trap 'rm -f "$index"' EXIT
    curl -fsS --max-time 120 "${mirror%/}/dists/bookworm-backports/main/binary-amd64/Packages.xz" | xz -dc >"$index"
    for package in valkey-server valkey-tools; do
        file="$(awk -v name="$package" '$1 == "Package:" { is = $2 == name } is && $1 == "Filename:" { print $2; exit }' "$index")"
        [ -n "$file" ] || { echo "$package is not in bookworm-backports" >&2; exit 3; }
        curl -fsS --max-time 120 -o "$scratch/$package.deb" "${mirror%/}/$file"
        dpkg -x "$scratch/$package.deb" "$scratch/root"
    done
fi
for tool in server cli benchmark check-aof check-rdb; do
    ln -sf "$scratch/root/usr/bin/valkey-$tool" "$scratch/bin/redis-$tool"
done
export PATH="$scratch/bin:$PATH"
redis-server --version
cargo test --quiet -p flintkv-node --test node -- replica migrate files::
cargo test --quiet -p flintkv-tests --test replication --test migrate
