#!/usr/bin/env python3
"""Asks Redis Commander, as its page does, for the tree of keys, values of every type and a command. Called by run.sh."""

import json
import sys
import urllib.parse
import urllib.request

web = sys.argv[1]


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(web + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def same(found, wanted, what):
    if found != wanted:
        sys.exit(f"FAIL Redis Commander: {what}: {found!r}, not {wanted!r}")


of = urllib.parse.quote(ask("/connections")["connections"][0]["conId"])
info = {row["key"]: row["value"] for row in ask("/apiv2/server/info")["data"][0]["info"]}
same(info["Redis version"], "7.2.4", "the version")
tree = {node["text"].split(" ")[0] for node in ask(f"/apiv2/keystree/{of}")["data"]}
same({"text", "profile", "cart", "tags", "board", "orders", "page:*"} - tree, set(), "missing in the tree")
# A value on flash, and each type.
same(len(ask(f"/apiv2/key/{of}/page:1")["value"]), 900, "a value on flash")
same(ask(f"/apiv2/key/{of}/text")["value"], "hello", "a string")
same(ask(f"/apiv2/key/{of}/profile")["data"], {"name": "Ada", "visits": "1842"}, "a hash")
same([item["value"] for item in ask(f"/apiv2/key/{of}/cart")["items"]], ["sku-1", "sku-2"], "a list")
same(sorted(ask(f"/apiv2/key/{of}/tags")["members"]), ["flash", "ram"], "a set")
same(sorted(item["value"] for item in ask(f"/apiv2/key/{of}/board")["items"]), ["ada", "grace"], "a sorted set")
same(ask(f"/apiv2/key/{of}/orders")["items"][0]["value"], "12.50", "a stream")
same(ask(f"/apiv2/exec/{of}", {"cmd": "incrby commander 42"})["data"], 42, "a command")
print("commander: the tree, seven values, a command")
