"""Keeps a server's RAM full from database 15, and takes some of it away every other moment. Ends with the server.

    filler.py PORT MEGABYTES TIGHT USUAL

Fills so much, says "full", then goes on writing a little while the RAM limit falls to TIGHT and rises to USUAL. PSETEX is
not counted by any program, so their counts of calls stay their own.
"""

import socket
import sys
import time


def batch(prefix, count, value):
    parts = []
    for n in range(count):
        key = b"%s:%d" % (prefix, n)
        parts.append(b"*4\r\n$6\r\nPSETEX\r\n$%d\r\n%s\r\n$8\r\n10000000\r\n$%d\r\n" % (len(key), key, len(value)))
        parts.append(value + b"\r\n")
    return b"".join(parts)


def main():
    link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    replies = link.makefile("rb")
    link.sendall(b"SELECT 15\r\n")
    replies.readline()

    def limit(ram):
        link.sendall(b"CONFIG SET ram-limit %s\r\n" % ram.encode())
        if not replies.readline().startswith(b"+"):
            raise ConnectionError

    def write(prefix, count, value):
        link.sendall(batch(prefix, count, value))
        for _ in range(count):
            if not replies.readline().startswith(b"+"):
                raise ConnectionError

    for megabyte in range(int(sys.argv[2])):
        write(b"filler:%d" % megabyte, 128, bytes(range(256)) * 32)
    print("full", flush=True)
    while True:
        write(b"small", 20, bytes(1000))
        limit(sys.argv[3])
        time.sleep(0.02)
        limit(sys.argv[4])
        time.sleep(0.02)


try:
    main()
except OSError:
    pass
