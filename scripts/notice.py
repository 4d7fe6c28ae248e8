#!/usr/bin/env python3
"""NOTICE: the licences of all code that is in the binary and not FlintKV's own.

    scripts/notice.py            writes crates/flintkv/NOTICE
    scripts/notice.py --check    fails if the file is not what would be written

The crates are those that Cargo.lock links into the binary on Linux (x86_64 and aarch64); their texts are in their sources as crates.io
has them. Of a choice of licences, MIT is taken if it is offered, otherwise Apache-2.0. The scripts of the web console hold two libraries
of npm, whose texts are in console/licences. A crate without a text, or a library of the console without one, is an error.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTICE = ROOT / "crates/flintkv/NOTICE"
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
NAMES = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense|copyright)")
# Sources in other languages that a crate contains: their owner, and the file with their licence.
BROUGHT = {
    "tikv-jemalloc-sys": [("jemalloc", "jemalloc/COPYING")],
    "zstd-sys": [("Zstandard", "zstd/LICENSE")],
    "mlua-sys": [("Lua 5.1", "lua-src:lua-5.1.5/lua.h")],
}
# The packages that vite bundles into console-dist.
CONSOLE = ["svelte", "uplot"]


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    for platform in PLATFORMS:
        command += ["--filter-platform", platform]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def linked(known):
    """The packages whose code is in the binary, and all packages by name."""
    packages = {package["id"]: package for package in known["packages"]}
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    waiting = [package["id"] for package in known["packages"] if package["name"] == "flintkv"]
    seen = set()
    while waiting:
        one = waiting.pop()
        # Skip procedural macros: their code runs in the compiler and is not in the binary.
        if one in seen or any("proc-macro" in target["kind"] for target in packages[one]["targets"]):
            continue
        seen.add(one)
        for needed in nodes[one]["deps"]:
            if any(kind["kind"] is None for kind in needed["dep_kinds"]):
                waiting.append(needed["pkg"])
    found = [packages[one] for one in seen if packages[one]["source"]]
    return sorted(found, key=lambda package: (package["name"], package["version"])), packages.values()


def folder(package):
    return Path(package["manifest_path"]).parent


def texts_of(package, linked_packages):
    """The licence's files: of a choice, those of one licence."""
    files = sorted(file for file in folder(package).iterdir() if file.is_file() and NAMES.match(file.name))
    if not files:
        # A workspace that publishes several crates may have the licence text in only one of them.
        for other in linked_packages:
            if other["repository"] == package["repository"] and other["license"] == package["license"]:
                files = files or sorted(file for file in folder(other).iterdir() if NAMES.match(file.name))
    if not files:
        sys.exit(f"{package['name']} {package['version']} ({package['license']}) has no text of its licence")
    if re.search(r" OR |/", package["license"] or ""):
        for wanted in ["MIT", "APACHE"]:
            chosen = [file for file in files if re.search(wanted, file.name, re.I)]
            if chosen:
                files = chosen
                break
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def brought(package, packages):
    for name, place in BROUGHT.get(package["name"], []):
        other, _, path = place.rpartition(":")
        of = next(one for one in packages if one["name"] == other) if other else package
        text = (folder(of) / path).read_text(encoding="utf-8")
        if path.endswith(".h"):
            text = re.sub(r"(?m)^\* ?", "", text[text.rindex("Copyright (C)"):text.rindex("***/")].rpartition("\n")[0])
        yield f"{name} (in {package['name']} {package['version']})", text


def main():
    ours, packages = linked(metadata())
    # Each text is printed once, with all crates that have it. Texts that differ only in spaces and line ends are the
    # same.
    whose = {}
    for package in ours:
        licence = package["license"] or "see its text"
        mine = [(f"{package['name']} {package['version']} ({licence})", text) for text in texts_of(package, ours)]
        for name, text in mine + list(brought(package, packages)):
            names, _ = whose.setdefault(" ".join(text.split()), ([], text))
            if name not in names:
                names.append(name)
    for name in CONSOLE:
        text = (ROOT / "console/licences" / name).read_text(encoding="utf-8")
        version = json.loads((ROOT / "console/package-lock.json").read_text())["packages"][f"node_modules/{name}"]["version"]
        names, _ = whose.setdefault(" ".join(text.split()), ([], text))
        names.append(f"{name} {version} (MIT), in the web console")
    rule = "-" * 100
    out = [
        "FlintKV is licensed under Apache-2.0, see LICENSE. The binary also has code of others under the licences below; before each text stands\n"
        "whose it is. Written by scripts/notice.py.\n"
    ]
    for names, text in sorted(whose.values(), key=lambda entry: entry[0][0].lower()):
        lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\f", "").strip("\n").split("\n")]
        out.append("\n".join([rule, *names, rule, "", *lines, ""]))
    notice = "\n".join(out)
    if "--check" in sys.argv[1:]:
        if not NOTICE.exists() or NOTICE.read_text(encoding="utf-8") != notice:
            sys.exit("crates/flintkv/NOTICE is not current: run scripts/notice.py, and look at what has changed")
    else:
        NOTICE.write_text(notice, encoding="utf-8")
    print(f"{len(ours)} crates, {len(whose)} texts, {len(notice)} characters")


if __name__ == "__main__":
    main()
