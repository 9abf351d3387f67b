#!/usr/bin/env bash
# A tour of sandboxctl with the local driver. It prints what it does and stops with an
# error as soon as something is not as it should be.
set -euo pipefail

sandboxctl=$(realpath "$(command -v "${1:-sandboxctl}")")
work=$(mktemp -d)
export SANDBOXCTL_STATE_DIR=$work/state
unset SANDBOXCTL_DRIVER SANDBOXCTL_OUTPUT
trap 'status=$?; "$sandboxctl" rm -f --all >/dev/null 2>&1 || true; rm -rf "$work"; [ $status -eq 0 ] || echo "The demo failed." >&2; exit $status' EXIT
cd "$work"

step() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || step() { printf '\n# %s\n' "$*"; }
# Shows a command line as one would type it, whatever happens to its output, and runs it.
exec 3>&1
run() {
	local shown='$ sandboxctl' argument
	for argument; do
		[[ $argument =~ ^[A-Za-z0-9_./:=-]+$ ]] || argument=${argument@Q}
		shown+=" $argument"
	done
	printf '%s\n' "$shown" >&3
	"$sandboxctl" "$@"
}
fail() { echo "demo: $*" >&2; exit 1; }
expect() { [ "$2" = "$3" ] || fail "$1: expected '$3', got '$2'"; }

# Local sandboxes show this machine's programs.
PATH=/usr/local/bin:/usr/bin:/bin command -v python3 >/dev/null || fail "the tour computes with python3; please install it"

step "Create a sandbox; it ends by itself after ten minutes"
run create --name demo --ttl 10m
run ls

step "It has a kernel of its own: gVisor's, not this machine's"
run exec demo -- dmesg | sed -n 1,3p | tee kernel.txt
grep -qi gvisor kernel.txt || fail "the kernel log does not name gVisor"

step "Run a Python program that computes something and writes a file"
cat >primes.py <<'PYTHON'
import sys
primes = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n ** 0.5) + 1))]
open("/workspace/primes.txt", "w").write("\n".join(map(str, primes)))
print(f"{len(primes)} primes below 2000, the last is {primes[-1]}")
PYTHON
run exec -i demo -- python3 - <primes.py | tee primes.out
expect "the program's output" "$(cat primes.out)" "303 primes below 2000, the last is 1999"

step "There is no network"
if run exec demo -- python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 3)' 2>network.txt; then
	fail "the sandbox reached the network"
fi
tail -n 1 network.txt

step "Unless it is asked for: this one may reach a single host, and says what it refused"
run create --name guarded --ttl 10m --allow-host pkg.example.net
if run exec guarded -- python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 3)' 2>refused.txt; then
	fail "the sandbox reached what it must not"
fi
tail -n 1 refused.txt
run inspect --network guarded | tee network.txt
grep -q '^refused  tcp .*192.0.2.1:80 ' network.txt || fail "what was refused is not shown"
run rm guarded

step "Nothing of the caller's environment is inside"
export DEMO_SECRET=do-not-leak
run exec demo -- env | tee env.txt
! grep -q DEMO_SECRET env.txt || fail "the caller's environment leaked"

step "Copy a directory in and a file out, and compare checksums"
mkdir -p project/data
head -c 3000000 /dev/urandom >project/data/random.bin
cp primes.py project/
run cp project demo:/workspace
inside=$(run exec demo -- sha256sum /workspace/project/data/random.bin)
echo "$inside"
expect "the checksum inside" "${inside%% *}" "$(sha256sum project/data/random.bin | cut -d' ' -f1)"
run cp demo:/workspace/primes.txt .
run ls demo:/workspace
expect "the last line of the file" "$(tail -n 1 primes.txt)" 1999

step "Programs get one JSON object on one line"
run exec --json demo -- sh -c 'echo out; echo err >&2; exit 3' >result.json && code=0 || code=$?
cat result.json
expect "the exit code" "$code" 3
grep -q '"exit_code":3' result.json || fail "the JSON does not hold the exit code"

step "A command that takes too long is killed with all that it started; the sandbox stays"
run exec --timeout 2s demo -- sh -c 'sleep 60 & echo still here; sleep 60' && code=0 || code=$?
expect "the exit code of a timeout" "$code" 124
left=$("$sandboxctl" exec demo -- sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " " | grep -c "sleep [6]0 " || true')
expect "processes left" "$left" 0

step "Remove it"
run rm demo
run ls
expect "sandboxes left" "$("$sandboxctl" ls --quiet)" ""
echo
echo "All of that worked. Next: sandboxctl --help, or sandboxctl run -- python3 -c 'print(6 * 7)'"
