#!/usr/bin/env bash
# Builds the Debian package; its path is the last line of the output.
#
#   packaging/build-deb.sh [cargo deb's options ...]          from a release build
#   PROFILE=dev packaging/build-deb.sh --no-build --fast ...   from an existing debug build (tests)
#
# Man pages and completions come from the binary, the configuration is flintkv.conf with Debian's places.
set -euo pipefail
cd "$(dirname "$0")/.."

profile="${PROFILE:-release}"
case "$profile" in dev) folder=debug ;; *) folder="$profile" ;; esac
built="$(realpath -m "${CARGO_TARGET_DIR:-target}")/$folder"
made="$built/packaging"

cargo deb --version >/dev/null 2>&1 || { echo "there is no cargo-deb: cargo install --locked cargo-deb" >&2; exit 1; }

build=yes options=()
for option; do
    if [ "$option" = --no-build ]; then build=no; else options+=("$option"); fi
done
[ "$build" = no ] || cargo build --profile "$profile" --locked -p flintkv

rm -rf "$made"
mkdir -p "$made/man"
"$built/flintkv" man "$made/man" >/dev/null
gzip -9n "$made/man/"*
for shell in bash zsh fish; do
    case "$shell" in zsh) file=_flintkv ;; *) file="flintkv.$shell" ;; esac
    "$built/flintkv" completions "$shell" >"$made/$file"
done

# CHANGELOG.md describes the changes; Debian requires a line with the version.
version="$("$built/flintkv" --version)"
date="$(git log -1 --format=%cD 2>/dev/null || date -R)"
gzip -9n >"$made/changelog.Debian.gz" <<END
flintkv (${version#* }-1) stable; urgency=medium

  * See CHANGELOG.md in this directory.

 -- The FlintKV authors <flintkv@users.noreply.github.com>  $date
END

# place OLD NEW: the line OLD of flintkv.conf becomes NEW.
place() {
    grep -qx "$1" "$made/flintkv.conf" || { echo "flintkv.conf has no line '$1'" >&2; exit 1; }
    sed -i "s|^$1\$|$2|" "$made/flintkv.conf"
}
cp flintkv.conf "$made/flintkv.conf"
place "dir \." "dir /var/lib/flintkv"
place "supervised no" "supervised systemd"

cargo deb -q -p flintkv --no-build --profile "$profile" "${options[@]}"
