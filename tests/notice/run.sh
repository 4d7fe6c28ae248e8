#!/usr/bin/env bash
# crates/flintkv/NOTICE is what scripts/notice.py writes now, and the binary prints it. A crate that has no text of its licence fails here too.
# $FLINTKV is the binary. Exits with 0 if all is well, 3 if it cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v python3 >/dev/null || { echo "cannot run here: there is no python3"; exit 3; }
scripts/notice.py --check
"${FLINTKV:-target/debug/flintkv}" licences | cmp - crates/flintkv/NOTICE || { echo "FAIL the binary prints another NOTICE"; exit 1; }
