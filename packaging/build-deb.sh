#!/usr/bin/env bash
# Builds the Debian package with Debian's own tools (dpkg-dev, binutils); its path is the last line of the output. Beside it is the
# binary's debug information, PACKAGE.debug: installed as /usr/bin/.debug/flintkv.debug, it adds files and lines to backtraces.
#
#   packaging/build-deb.sh [--output FILE]                                      from a dist build, see Cargo.toml
#   PROFILE=dev packaging/build-deb.sh --no-build --fast [--output FILE]        from an existing debug build (tests)
#
# --fast compresses less. Man pages and completions come from the binary, the configuration is flintkv.conf with Debian's places.
set -euo pipefail
cd "$(dirname "$0")/.."

profile="${PROFILE:-dist}"
case "$profile" in dev) folder=debug ;; *) folder="$profile" ;; esac
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
binary="$target/$folder/flintkv"

build=yes output="" compression=(-Zxz)
while [ "$#" -gt 0 ]; do
    case "$1" in
        --no-build) build=no ;;
        --fast) compression=(-Zgzip -z1) ;;
        --output) output="$(realpath -m "$2")"; shift ;;
        *) echo "unknown option: $1" >&2; exit 2 ;;
    esac
    shift
done
for tool in dpkg-deb dpkg-shlibdeps objcopy; do
    command -v "$tool" >/dev/null || { echo "there is no $tool: apt-get install dpkg-dev binutils" >&2; exit 1; }
done
[ "$build" = no ] || cargo build --profile "$profile" --locked -p flintkv

# What the package installs, and beside it what its tools need.
made="$target/$folder/packaging"
root="$made/root"
rm -rf "$made"
mkdir -p "$root/DEBIAN" "$made/debian"
umask 022

# put MODE FILE ... FOLDER: the files, in a folder of the package.
put() {
    local mode="$1" to="${*: -1}"
    install -d "$root/$to"
    install -m "$mode" "${@:2:$#-2}" "$root/$to"
}

put 755 "$binary" usr/bin
# The symbols stay: the backtrace of a panic names its functions.
objcopy --only-keep-debug --compress-debug-sections "$root/usr/bin/flintkv" "$made/flintkv.debug"
objcopy --strip-debug --add-gnu-debuglink="$made/flintkv.debug" "$root/usr/bin/flintkv"
put 644 packaging/debian/*.service usr/lib/systemd/system

mkdir "$made/man"
"$binary" man "$made/man" >/dev/null
gzip -9n "$made/man/"*
put 644 "$made/man/"*.1.gz usr/share/man/man1
put 644 "$made/man/"*.5.gz usr/share/man/man5
# completions SHELL FILE
completions() {
    install -d "$root/$(dirname "$2")"
    "$binary" completions "$1" >"$root/$2"
}
completions bash usr/share/bash-completion/completions/flintkv
completions zsh usr/share/zsh/vendor-completions/_flintkv
completions fish usr/share/fish/vendor_completions.d/flintkv.fish

# place OLD NEW: the line OLD of flintkv.conf becomes NEW.
place() {
    grep -qx "$1" "$made/flintkv.conf" || { echo "flintkv.conf has no line '$1'" >&2; exit 1; }
    sed -i "s|^$1\$|$2|" "$made/flintkv.conf"
}
cp flintkv.conf "$made/flintkv.conf"
place "dir \." "dir /var/lib/flintkv"
place "supervised no" "supervised systemd"
put 640 "$made/flintkv.conf" etc/flintkv
cp packaging/debian/flintkv.logrotate "$made/flintkv"
put 644 "$made/flintkv" etc/logrotate.d

# CHANGELOG.md describes the changes; Debian requires a line with the version.
version="$("$binary" --version | head -n 1)"
version="${version#* }-1"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct 2>/dev/null || date +%s)"
export SOURCE_DATE_EPOCH
gzip -9n >"$made/changelog.Debian.gz" <<END
flintkv ($version) stable; urgency=medium

  * See CHANGELOG.md in this directory.

 -- The FlintKV authors <flintkv@users.noreply.github.com>  $(date -Rud "@$SOURCE_DATE_EPOCH")
END
put 644 packaging/debian/copyright "$made/changelog.Debian.gz" CHANGELOG.md README.md crates/flintkv/NOTICE docs/*.md usr/share/doc/flintkv
put 644 contrib/grafana/flintkv.json usr/share/doc/flintkv/examples/grafana
put 644 contrib/prometheus/*.yml usr/share/doc/flintkv/examples/prometheus

# The libraries that the binary needs, in versions that have the symbols that it uses.
echo "Source: flintkv" >"$made/debian/control"
needs="$(cd "$made" && dpkg-shlibdeps -O -Sroot -e root/usr/bin/flintkv 2>/dev/null | sed -n 's/^shlibs:Depends=//p')"
[ -n "$needs" ] || { echo "dpkg-shlibdeps knows no libraries of $binary" >&2; exit 1; }
architecture="$(dpkg --print-architecture)"
# As Debian's policy says: each file in whole KiB, and one for each directory.
size="$(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%s\n' -o -printf '1\n' | awk '{ kb += int(($1 + 1023) / 1024) } END { print kb }')"
sed -e "s|^Depends: |&$needs, |" \
    -e "s|^Package: .*|&\nVersion: $version\nArchitecture: $architecture\nInstalled-Size: $size|" packaging/debian/control >"$root/DEBIAN/control"
(cd "$root" && find etc -type f | sort | sed 's|^|/|') >"$root/DEBIAN/conffiles"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$root/DEBIAN"

output="${output:-$target/debian/flintkv_${version}_$architecture.deb}"
mkdir -p "$(dirname "$output")"
dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$output" >/dev/null
mv "$made/flintkv.debug" "$output.debug"
rm -rf "$made"
echo "$output"
