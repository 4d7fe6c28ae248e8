#!/usr/bin/env bash
# Redis's own suite starts this script as redis-server; run.sh puts it into place. FlintKV gets the suite's configuration
# file unchanged.
#
# $FLINTKV is the binary.

# The suite waits for this line, and for "Ready to accept connections", which FlintKV itself prints.
echo "redis-server is FlintKV, PID: $$"
exec -a redis-server "$FLINTKV" "$@"
