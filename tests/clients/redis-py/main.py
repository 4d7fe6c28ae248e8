"""redis-py against the server of the environment: every family in every variant, one line for each that fails."""

import sys
import time
import warnings

import harness

import values  # noqa: F401
import ordered  # noqa: F401
import streams  # noqa: F401
import flow  # noqa: F401
import server  # noqa: F401
import connections  # noqa: F401
import surface

VARIANTS = [
    # The default: RESP3 on the wire. hiredis parses where it is installed.
    {"name": "sync-resp3", "style": "sync", "resp": 3, "options": {}},
    {"name": "sync-resp2", "style": "sync", "resp": 2, "options": {"protocol": 2}},
    {"name": "asyncio-resp3", "style": "asyncio", "resp": 3, "options": {}},
    {"name": "asyncio-resp2", "style": "asyncio", "resp": 2, "options": {"protocol": 2}},
]


def main():
    warnings.simplefilter("ignore", DeprecationWarning)
    wanted = sys.argv[1:]
    passed = failed = 0
    for variant in VARIANTS:
        used = set()
        for run, fits in harness.FAMILIES:
            if not fits(variant) or wanted and run.__name__ not in wanted:
                continue
            started = time.monotonic()
            wrong = harness.run_family(variant, run, used)
            took = time.monotonic() - started
            if wanted or took > 1:
                print(f"{variant['name']} {run.__name__}: {took:.2f} s")
            if wrong is None:
                passed += 1
            else:
                failed += 1
                print(f"FAIL {variant['name']} {run.__name__}: {wrong}")
        # A family that fails early leaves methods unused.
        missing = [] if wanted or failed else surface.missing(variant, used)
        if missing:
            failed += 1
            print(f"FAIL {variant['name']} surface: nothing uses {' '.join(missing)}")
    print(f"passed {passed}, failed {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
