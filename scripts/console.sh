#!/usr/bin/env bash
# The web console: crates/api/console-dist is built from console/ and committed, so that cargo needs no Node.
#
#   scripts/console.sh build   builds the console, and prints the sizes of its files
#   scripts/console.sh check   checks types, runs unit tests, and compares the committed files with a new build
#
# Exits with 3 if Node is missing or too old.
set -euo pipefail
cd "$(dirname "$0")/.."

dist="crates/api/console-dist"
oldest=20
# The most bytes of all scripts together, gzipped: what a first visit loads.
script_bytes=$((160 * 1024))

usable() {
    command -v npm >/dev/null && command -v node >/dev/null &&
        [ "$(node -p 'process.versions.node.split(".")[0]')" -ge "$oldest" ]
}
usable || { echo "skipped: the console is built with Node $oldest or newer and npm" >&2; exit 3; }

# The registry sometimes fails, so try twice more after a pause.
install() {
    local stamp pause
    stamp="$(sha256sum console/package-lock.json)"
    [ "$(cat console/node_modules/.stamp 2>/dev/null)" = "$stamp" ] && return
    for pause in 5 20 0; do
        if npm --prefix console ci --loglevel=error --no-audit --no-fund >/dev/null; then
            echo "$stamp" >console/node_modules/.stamp
            return
        fi
        [ "$pause" -gt 0 ] || return 1
        echo "npm ci failed, again in $pause s"
        sleep "$pause"
    done
}

# build DIR
build() {
    (cd console && npx --no-install vite build --logLevel warn --outDir "$1" --emptyOutDir)
}

sizes() {
    local file
    for file in "$dist"/assets/*; do
        echo "$(basename "$file"): $(stat -c %s "$file") bytes, $(gzip -9 -c "$file" | wc -c) gzipped"
    done
}

case "${1:-}" in
    build)
        install
        build "$PWD/$dist"
        sizes
        ;;
    check)
        install
        (cd console && npm run --silent check && npm run --silent test -- --silent)
        fresh="$(mktemp -d)"
        trap 'rm -rf "$fresh"' EXIT
        build "$fresh"
        if ! diff -r "$fresh" "$dist"; then
            echo "FAIL: $dist is not what console/ builds: scripts/console.sh build, and commit it" >&2
            exit 1
        fi
        sizes
        scripts="$(cat "$dist"/assets/*.js | gzip -9 -c | wc -c)"
        if [ "$scripts" -gt "$script_bytes" ]; then
            echo "FAIL: the console's scripts take $scripts bytes gzipped, more than $script_bytes" >&2
            exit 1
        fi
        ;;
    *)
        sed -n '2,/^set /p' "$0" | sed '$d; s/^# \?//' >&2
        exit 1
        ;;
esac
