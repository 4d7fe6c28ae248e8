#!/usr/bin/env bash
# Fetches the source package of redis 7.0 from the Debian mirrors that this machine's apt uses, for its test-suite, which
# is never committed. Prints the folder of the sources.
#
#   tests/redis/fetch.sh DIR    kept in DIR; a second call fetches nothing
#
# The machine's own list of sources stays as it is: apt gets a list of its own, with the same mirrors and only sources.
# Exits with 3, and says why, where the package cannot be had.
set -uo pipefail

kept="$(mkdir -p "$1" && cd "$1" && pwd)"
find_sources() { find "$kept" -maxdepth 1 -type d -name 'redis-7.0*' | head -n 1; }
not_run() { echo "Redis's own tests are not run: $1" >&2; exit 3; }

found="$(find_sources)"
if [ -z "$found" ]; then
    command -v apt-get >/dev/null || not_run "there is no apt-get to fetch Debian's source package of redis with"
    command -v dpkg-source >/dev/null || not_run "dpkg-source is missing: apt-get install dpkg-dev"
    apt="$kept/apt"
    mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$list" ] && sed -n 's/^deb[[:space:]]/deb-src /p' "$list"
    done >"$apt/parts/own.list"
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -f "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$apt/parts/$(basename "$list")"
    done
    options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/parts" -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    # Some of the machine's mirrors may have no sources. What counts is whether one of them has this package.
    timeout 120 apt-get "${options[@]}" update >"$apt/log" 2>&1
    (cd "$kept" && timeout 120 apt-get "${options[@]}" source redis) >>"$apt/log" 2>&1
    found="$(find_sources)"
    [ -n "$found" ] || { tail -n 3 "$apt/log" >&2; not_run "Debian's source package of redis 7.0 cannot be fetched"; }
fi
echo "$found"
