#!/usr/bin/env bash
# What Redis's own suite starts as redis-server: run.sh puts it there. The suite's configuration file goes to FlintKV as it is.
#
# $FLINTKV is the binary.

# The suite waits for this, and for "Ready to accept connections", which FlintKV says by itself.
echo "redis-server is FlintKV, PID: $$"
exec -a redis-server "$FLINTKV" "$@"
