#!/usr/bin/env python3
"""Measures the RAM hit ratios of a node: Zipf's law, a scan through a hot set, and a hot set that moves. scripts/cachesim.sh simulates the same.

Starts a node without persistence on a free port of loopback, in a directory of its own that is removed, and ends it. Values of 500 bytes that do
not compress. Zipf: the ratio of twice as many accesses as there are keys, after five times as many. Scan, moving: the ratio of each pass of GETs
over the hot set, in order.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

FLASH_MB_PER_MILLION_KEYS = 750


class Node:
    def __init__(self, binary, keys, ram_mb):
        self.binary, self.keys = binary, keys
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.directory = tempfile.mkdtemp(prefix="flintkv-hits-")
        memory_mb = ram_mb + max(64, keys * FLASH_MB_PER_MILLION_KEYS // 1_000_000)
        limits = ["--memory-limit", f"{memory_mb}mb", "--ram-limit", f"{ram_mb}mb", "--flash-path", self.directory]
        words = [binary, "server", "--port", str(self.port), "--dir", self.directory, "--appendonly", "no", *limits]
        with open(os.path.join(self.directory, "log"), "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def __enter__(self):
        try:
            self.wait_for_start()
            self.bench("-t", 1, "-c", 1, "--pipeline", 32, "--ratio", "1:0", "--key-pattern", "P:P", *self.span(1, self.keys), "-n", "allkeys")
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_for_start(self):
        for _ in range(200):
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.05)
        sys.exit("the node did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory)

    @staticmethod
    def span(first, last):
        return ["--key-minimum", first, "--key-maximum", last]

    def bench(self, *words):
        load = [self.binary, "bench", "-h", "127.0.0.1", "-p", self.port, "-d", 500, "--data-compressibility", 0, "--hide-histogram", *words]
        subprocess.run([str(word) for word in load], check=True, capture_output=True)

    def figures(self):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"INFO tiering\r\n")
            reply = connection.makefile("rb")
            text = reply.read(int(reply.readline()[1:])).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def share_in_ram(self):
        figures = self.figures()
        in_ram, on_flash = int(figures["values_in_ram"]), int(figures["values_in_flash"])
        return in_ram / (in_ram + on_flash)

    def hit_percent(self, *words):
        def counts():
            figures = self.figures()
            return int(figures["storage_provider_read_hits"]), int(figures["storage_provider_read_misses"])

        before = counts()
        self.bench(*words)
        hits, misses = (now - then for now, then in zip(counts(), before))
        return 100 * hits / max(1, hits + misses)

    def read_in_order(self, first, last):
        return self.hit_percent(
            "-t", 1, "-c", 1, "--pipeline", 20, "--ratio", "0:1", "--key-pattern", "S:S", *self.span(first, last), "-n", last - first + 1
        )


def zipf(binary, keys, ram_mb):
    for ratio in ["0:1", "1:1"]:
        for exponent in [0.7, 0.9, 1.0, 1.1]:
            with Node(binary, keys, ram_mb) as node:
                load = ["-t", 2, "-c", 8, "--pipeline", 4, "--ratio", ratio, "--key-pattern", "Z:Z", "--key-zipf-exp", exponent]
                load += ["--distinct-client-seed", *node.span(1, keys)]
                node.bench(*load, "-n", keys * 5 // 16, "--seed", 1)
                hits = node.hit_percent(*load, "-n", keys * 2 // 16, "--seed", 2)
                print(f"exponent {exponent}, SETs to GETs {ratio}: {hits:.1f} % of the reads, {node.share_in_ram():.3f} of the values in RAM", flush=True)


def hot_sets(binary, keys, ram_mb, moves):
    with Node(binary, keys, ram_mb) as node:
        # So that the hand has passed all values.
        uniform = ["-t", 2, "-c", 8, "--pipeline", 4, "--ratio", "0:1", "--key-pattern", "R:R", "--distinct-client-seed"]
        node.bench(*uniform, *node.span(1, keys), "-n", keys // 16)
        share = node.share_in_ram()
        hot = int(keys * share * 0.8)
        print(f"{share:.3f} of the values in RAM, a hot set of 0.8 of that")

        def passes(first):
            return " ".join(f"{node.read_in_order(first, first + hot - 1):.1f}" for _ in range(8))

        print(f"hits of passes over the hot set: {passes(1)} %")
        if moves:
            print(f"over another one: {passes(keys // 2)} %")
        else:
            node.read_in_order(1, keys)
            print(f"after a GET of every key: {passes(1)} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("what", choices=["zipf", "scan", "moving"])
    parser.add_argument("keys", type=int, nargs="?", default=400_000)
    parser.add_argument("ram_mb", type=int, nargs="?", default=110)
    given = parser.parse_args()
    if given.what == "zipf":
        zipf(given.binary, given.keys, given.ram_mb)
    else:
        hot_sets(given.binary, given.keys, given.ram_mb, given.what == "moving")


main()
