#!/usr/bin/env python3
"""Compares the monitoring of a running FlintKV with FlintKV's own figures. Called by run.sh."""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

# Names that Prometheus itself creates.
OF_PROMETHEUS = {"up"}
WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "le"}

failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print(f"FAIL {what}")


def fetch(url):
    with urllib.request.urlopen(url, timeout=20) as reply:
        return reply.read().decode()


def samples(page):
    """`name{labels}` to its value."""
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def names(page):
    return {re.match(r"[^{ ]+", name)[0] for name in samples(page)}


def metrics_of(expression):
    """The metrics in a PromQL expression: the words left after removing strings, labels, ranges and functions."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", text)
    found = re.findall(r"(?<![\w.])[a-zA-Z_:][\w:]*(?!\w)(?!\s*\()", text)
    return {name for name in found if name not in WORDS}


def alert_expressions(path):
    """`expr: …` on a line of its own, or folded with `>-` into the more indented lines below."""
    lines = path.read_text().splitlines()
    found = []
    for number, line in enumerate(lines):
        match = re.match(r"(\s+)expr: (.*)", line)
        if not match:
            continue
        indent, text = len(match[1]), match[2]
        if text == ">-":
            folded = []
            for below in lines[number + 1:]:
                if len(below) - len(below.lstrip()) <= indent:
                    break
                folded.append(below.strip())
            text = " ".join(folded)
        found.append(text)
    alerts = [line.split("alert:")[1].strip() for line in lines if "alert:" in line]
    check(len(found) == len(alerts) > 0, f"{path}: an expression for each alert")
    guide = (path.parent.parent.parent / "docs/operations.md").read_text()
    for alert in alerts:
        check(f"| {alert} |" in guide, f"docs/operations.md does not say what to do at {alert}")
    return found


def dashboard_expressions(path):
    found = []

    def visit(value):
        if isinstance(value, dict):
            if isinstance(value.get("expr"), str):
                found.append(value["expr"])
            for part in value.values():
                visit(part)
        elif isinstance(value, list):
            for part in value:
                visit(part)

    board = json.loads(path.read_text())
    visit(board)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            found.append(re.match(r"label_values\((.*), \w+\)$", variable["definition"])[1])
    check(len(found) > 20, f"{path}: its expressions are found")
    ids = [panel["id"] for panel in board["panels"]]
    check(len(set(ids)) == len(ids), f"{path}: panels' ids are their own")
    return [text.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$database", ".*") for text in found]


def info(args):
    text = subprocess.run(["redis-cli", "-p", str(args.port), "info", "everything"], capture_output=True, text=True, check=True).stdout
    return dict(line.strip().split(":", 1) for line in text.splitlines() if ":" in line)


def load(args, *options):
    command = [args.flintkv, "bench", "-p", str(args.port), "-t", "1", "-c", "4", "--pipeline=8", "-d", "500",
               "--key-maximum=60000", "--hide-histogram", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def exporter(args):
    """Starts redis_exporter; returns it and its address."""
    address = f"127.0.0.1:{args.exporter_port}"
    log = open(args.scratch / "exporter.log", "w")
    process = subprocess.Popen([args.exporter, "-redis.addr", f"redis://127.0.0.1:{args.port}", "-web.listen-address", address],
                               stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while True:
        try:
            fetch(f"http://{address}/health")
            return process, f"http://{address}/metrics"
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("FAIL redis_exporter does not start: " + (args.scratch / "exporter.log").read_text())
            time.sleep(0.05)


def redis_exporter(args):
    """redis_exporter scrapes under load without an error, and its figures afterwards equal INFO's."""
    process, url = exporter(args)
    try:
        for options in (["--ratio=1:0", "--key-pattern=P:P", "-n", "15000"], ["--ratio=1:4", "-n", "10000"]):
            bench = load(args, *options)
            scrapes = 0
            while True:
                running = bench.poll() is None
                page = samples(fetch(url))
                scrapes += 1
                check(page["redis_up"] == 1, "redis_exporter: redis_up under load")
                # This metric counts the errors of single commands.
                check(page.get('redis_exporter_last_scrape_error{err=""}') == 0, f"redis_exporter: {error_of(page)}")
                if not running:
                    break
            check(bench.returncode == 0, f"flintkv bench {' '.join(options)} ends with {bench.returncode}")
            print(f"redis_exporter: {scrapes} scrapes under load")
        page, told = samples(fetch(url)), info(args)
    finally:
        process.terminate()
        process.wait()
    for metric, field in {
        "redis_keyspace_hits_total": "keyspace_hits",
        "redis_keyspace_misses_total": "keyspace_misses",
        "redis_expired_keys_total": "expired_keys",
        "redis_evicted_keys_total": "evicted_keys",
        "redis_rejected_connections_total": "rejected_connections",
        "redis_memory_max_bytes": "maxmemory",
        "redis_config_maxmemory": "maxmemory",
        "redis_config_maxclients": "maxclients",
        "redis_connected_slaves": "connected_slaves",
        "redis_process_id": "process_id",
        "redis_blocked_clients": "blocked_clients",
    }.items():
        check(page.get(metric) == float(told[field]), f"{metric} {page.get(metric)} is not INFO's {field} {told[field]}")
    keys = float(re.match(r"keys=(\d+)", told["db0"])[1])
    check(page.get('redis_db_keys{db="db0"}') == keys == 60000, f"redis_db_keys {page.get('redis_db_keys{db=' + chr(34) + 'db0' + chr(34) + '}')}")
    calls = float(re.match(r"calls=(\d+)", told["cmdstat_get"])[1])
    check(page.get('redis_commands_total{cmd="get"}') == calls > 0, "redis_commands_total of get is cmdstat_get's calls")
    check(page["redis_slowlog_length"] > 0, "redis_slowlog_length")
    check(any(name.startswith("redis_instance_info{") and 'redis_version="7.2' in name for name in page), "redis_instance_info")
    return told


def error_of(page):
    return next((name for name in page if name.startswith("redis_exporter_last_scrape_error")), "no redis_exporter_last_scrape_error")


def lint(args, page):
    linted = subprocess.run([args.promtool, "check", "metrics"], input=page, capture_output=True, text=True)
    # redis_exporter's names, which its dashboards use, do not all follow today's rules.
    complaints = [line for line in linted.stderr.splitlines() if line and not line.startswith("redis_")]
    check(linted.returncode in (0, 3) and not complaints, f"promtool check metrics: {complaints or linted.stderr}")


def cluster_metrics(args):
    """The names of the metrics of the cluster that run.sh has made: n1 with etcd, n2, and the database `shared` with two shards."""
    # Which of the nodes has which shard depends on their ids.
    served = 'flintkv_cluster_shard_served{database="shared",shard="%s",node="%s"}'
    first = 0 if served % (0, "n1") in samples(fetch(f"http://127.0.0.1:{args.cluster_console}/metrics")) else 1
    at_n1, at_n2 = served % (first, "n1"), served % (1 - first, "n2")
    wanted = {
        at_n1: 1,
        at_n2: 1,
        'flintkv_cluster_info{cluster="monitored",node="n1"}': 1,
        'flintkv_cluster_node_up{node="n1",role="data",zone="a"}': 1,
        'flintkv_cluster_node_up{node="n2",role="data",zone="b"}': 1,
        "flintkv_cluster_troubles": 0,
        'flintkv_cluster_shard_copies{database="shared",shard="0"}': 1,
        'flintkv_cluster_shard_copies_in_sync{database="shared",shard="0"}': 1,
        "flintkv_cluster_etcd_up": 1,
        "flintkv_cluster_etcd_quota_bytes": 64 << 20,
        'flintkv_cluster_etcd_member_up{member="n1"}': 1,
        'flintkv_cluster_etcd_member_leader{member="n1"}': 1,
        'flintkv_cluster_etcd_alarms{alarm="no space"}': 0,
        'flintkv_forwards_uncertain_total{database="shared",node="n1"}': 0,
    }
    above_nothing = ['flintkv_cluster_clock_error_seconds{peer="n2"}', "flintkv_cluster_etcd_slowest_request_seconds",
                     'flintkv_cluster_links{peer="n2"}', 'flintkv_cluster_link_round_trip_seconds{peer="n2"}',
                     f'redis_db_keys{{database="shared",shard="{first}",node="n1",db="db0"}}',
                     'flintkv_cluster_etcd_db_bytes{member="n1"}', 'redis_memory_max_bytes{database="shared",node="n1"}',
                     'flintkv_client_memory_max_bytes{database="shared",node="n1"}']
    page = cluster_page(args, wanted, above_nothing)
    found = samples(page)
    for certificate, days in (("node", 365), ("etcd", 365), ("authority", 3650)):
        name = f'flintkv_cluster_certificate_expiry_timestamp_seconds{{certificate="{certificate}"}}'
        left = (found.get(name, 0) - time.time()) / 86400
        check(days - 1 < left <= days, f"{name}: {left} days left")
    lint(args, page)

    # A node that is gone, and what clients are told of its keys.
    os.kill(args.second_node, signal.SIGTERM)
    cluster_page(args, {'flintkv_cluster_links{peer="n2"}': 0}, [])
    # In one pipeline, whose commands wait for the shard together.
    with socket.create_connection(("127.0.0.1", args.shared), timeout=60) as client:
        client.sendall(b"".join(b"get %d\r\n" % key for key in range(1, 41)) + b"quit\r\n")
        told = b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()
    down = told.count("CLUSTERDOWN")
    check(0 < down < 40, f"{down} of 40 keys are down")
    cluster_page(args, {
        'flintkv_cluster_node_up{node="n1",role="data",zone="a"}': 1,
        'flintkv_cluster_node_up{node="n2",role="data",zone="b"}': 0,
        at_n1: 1,
        at_n2: 0,
        'flintkv_cluster_links{peer="n2"}': 0,
        'flintkv_cluster_link_round_trip_seconds{peer="n2"}': None,
        'flintkv_forwards_down_total{database="shared",node="n1"}': down,
    }, [])
    return names(page)


def cluster_page(args, wanted, above_nothing):
    """/metrics of the cluster's first node, once it has these values."""
    deadline = time.monotonic() + 60
    while True:
        page = fetch(f"http://127.0.0.1:{args.cluster_console}/metrics")
        found = samples(page)
        wrong = {name: found.get(name) for name, value in wanted.items() if found.get(name) != value}
        wrong |= {name: found.get(name) for name in above_nothing if not found.get(name, 0) > 0}
        if not wrong or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    check(not wrong, f"/metrics of a cluster's node: {wrong}")
    return page


def own_metrics(args, told):
    page = fetch(f"http://127.0.0.1:{args.console}/metrics")
    # Some metrics are those of a replica only, and of a primary with one.
    deadline = time.monotonic() + 60
    while "flintkv_replica_lag_seconds" not in names(page) and time.monotonic() < deadline:
        time.sleep(0.1)
        page = fetch(f"http://127.0.0.1:{args.console}/metrics")
    has = names(page) | names(fetch(f"http://127.0.0.1:{args.replica_console}/metrics")) | cluster_metrics(args)

    lint(args, page)

    files = {path: expressions(path) for path, expressions in (
        (args.contrib / "prometheus/alerts.yml", alert_expressions),
        (args.contrib / "prometheus/cluster-alerts.yml", alert_expressions),
        (args.contrib / "grafana/flintkv.json", dashboard_expressions),
        (args.contrib / "grafana/flintkv-cluster.json", dashboard_expressions),
    )}
    rules = []
    for path, expressions in files.items():
        for expression in expressions:
            rules.append({"record": f"expression:{len(rules)}", "expr": expression})
            missing = metrics_of(expression) - has - OF_PROMETHEUS
            check(metrics_of(expression), f"{path.name}: no metric is found in {expression}")
            check(not missing, f"{path.name}: /metrics has no {', '.join(sorted(missing))}")
    syntax = args.scratch / "expressions.yml"
    syntax.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    checked = subprocess.run([args.promtool, "check", "rules", syntax], capture_output=True, text=True)
    check(checked.returncode == 0, f"an expression is not PromQL: {checked.stdout}{checked.stderr}")
    print(f"{len(rules)} expressions, {len(has)} metrics")

    page = samples(page)
    own = '{database="default"}'
    for metric, field in {
        "redis_keyspace_hits_total": "keyspace_hits",
        "redis_keyspace_misses_total": "keyspace_misses",
        "redis_expired_keys_total": "expired_keys",
        "redis_evicted_keys_total": "evicted_keys",
        "redis_memory_max_bytes": "maxmemory",
    }.items():
        check(page.get(metric + own) == float(told[field]), f"{metric} {page.get(metric + own)} is not INFO's {field} {told[field]}")
    for metric in ("flintkv_tier_flash_hits_total", "flintkv_tier_ram_hits_total", "flintkv_tier_demotions_written_total",
                   "flintkv_tier_flash_reads_total", "flintkv_tier_flash_live_bytes", "flintkv_command_duration_seconds_count"):
        check(page.get(metric + own, 0) > 0, f"{metric} counts nothing")
    check(page.get("flintkv_tier_keys" + own) == 60000, "flintkv_tier_keys")


def main():
    parser = argparse.ArgumentParser()
    for name in ("flintkv", "exporter", "promtool"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("port", "console", "replica-console", "cluster-console", "shared", "second-node", "exporter-port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("contrib", "scratch"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    own_metrics(args, redis_exporter(args))
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
