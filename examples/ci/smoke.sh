#!/bin/sh
# A smoke test of a program in a sandbox, for any CI: a fresh sandbox, the program copied
# in, its exit code and its output checked. It needs no jq.
set -eu

sandbox=$(sandboxctl create --ttl 15m --label "ci-run=${CI_RUN:-local}" --field name)
trap 'sandboxctl rm --force "$sandbox" >/dev/null' EXIT

work=$(mktemp -d)
cat >"$work/program.py" <<'PYTHON'
import json
json.dump({"answer": 6 * 7}, open("report.json", "w"))
print("done")
PYTHON

sandboxctl cp --quiet "$work/program.py" "$sandbox:program.py"
output=$(sandboxctl exec --field stdout --timeout 60s "$sandbox" -- python3 program.py)
[ "$output" = done ] || { echo "the program said '$output'" >&2; exit 1; }

sandboxctl cp --quiet "$sandbox:report.json" "$work/report.json"
grep -q '"answer": 42' "$work/report.json" || { echo "the report is wrong" >&2; exit 1; }

# What must not work: the program has no network.
if sandboxctl exec "$sandbox" -- python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 2)' 2>/dev/null; then
	echo "the sandbox reached the network" >&2
	exit 1
fi

rm -r "$work"
echo "The smoke test passed."
