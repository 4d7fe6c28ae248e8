#!/usr/bin/env bash
# Checks that crates/flintkv/NOTICE equals the output of scripts/notice.py, and that the binary prints it. A crate without a
# licence text also fails here. $FLINTKV is the binary. Exits with 0 if all is well, 3 if it cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v python3 >/dev/null || { echo "cannot run here: there is no python3"; exit 3; }
scripts/notice.py --check
"${FLINTKV:-target/debug/flintkv}" licences | cmp - crates/flintkv/NOTICE || { echo "FAIL the binary prints another NOTICE"; exit 1; }
