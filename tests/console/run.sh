#!/usr/bin/env bash
# The console in Debian's chromium with a real node. The committed files must equal a new build. A database is created
# through the form, loaded with the load generator, watched, resized and deleted. axe-core checks every page at two widths in both
# themes.
#
#   tests/console/run.sh [PART ...]   check, flow, keys, views, watch, states, cluster, pages; all of them without arguments
#   tests/console/run.sh million      the key browser with a million keys: prints what each view takes, and the first paint
#
# $FLINTKV is the binary, $CONSOLE_TEST_DIR where packages and pictures are kept. Exits with 0 if all is well, 3 if it
# cannot run here.
set -uo pipefail
cd "$(dirname "$0")"

root="$(realpath ../..)"
target="$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")"
export FLINTKV="${FLINTKV:-$target/debug/flintkv}"
kept="$(realpath -m "${CONSOLE_TEST_DIR:-$target/console}")"
export PICTURES="$kept/pictures"
[ -x "$FLINTKV" ] || { echo "no binary at $FLINTKV: cargo build, or set FLINTKV" >&2; exit 1; }

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(check flow keys views watch states cluster pages)

if ! { command -v node && command -v npm; } >/dev/null || [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
    echo "skipped: the console's tests need Node 20 or newer and npm"
    exit 3
fi

# Debian's browser, because the packages of the tests contain none.
CHROMIUM="$(command -v chromium || true)"
if [ -z "$CHROMIUM" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "skipped: there is no chromium"
        exit 3
    fi
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
    CHROMIUM="$(command -v chromium || true)"
    [ -n "$CHROMIUM" ] || { echo "skipped: chromium cannot be installed here"; exit 3; }
fi
export CHROMIUM

# Packages are kept in the target directory, so that a second run is quick. The registry fails now and then, so try twice more after a pause.
stamp="$(sha256sum package-lock.json)"
if [ "$(cat "$kept/.stamp" 2>/dev/null)" != "$stamp" ]; then
    mkdir -p "$kept"
    cp package.json package-lock.json .npmrc "$kept/"
    for pause in 5 20 0; do
        npm --prefix "$kept" ci --loglevel=error >/dev/null && echo "$stamp" >"$kept/.stamp" && break
        [ "$pause" -gt 0 ] || { echo "FAIL: npm ci"; exit 1; }
        sleep "$pause"
    done
fi
mkdir -p "$PICTURES"
export PACKAGES="$kept/node_modules"

failed=0
for part in "${parts[@]}"; do
    started=$SECONDS code=0
    if [ "$part" = check ]; then
        "$root/scripts/console.sh" check || code=$?
    else
        node "$part.mjs" || code=$?
    fi
    verdict=ok
    [ "$code" -eq 0 ] || { verdict="FAILED ($code)"; failed=1; }
    echo "$part: $verdict; $((SECONDS - started)) s"
done
exit "$failed"
