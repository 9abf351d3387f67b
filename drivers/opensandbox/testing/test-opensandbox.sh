#!/bin/sh
# Tests the OpenSandbox driver against the most real things that run without an installation:
#
#   1. the driver's own tests and the conformance suite against the double;
#   2. OpenSandbox's own Python SDK and CLI against the double, so that the double is right;
#   3. the driver and the suite against the real lifecycle server on a real Docker Engine, with the double's execd
#      and egress in the server's images, since the real images cannot be fetched here.
#
# Without arguments it takes all steps; "double", "clients" and "real" name them.
#
# Step 3 needs root and dockerd and says so when it is left out. Python packages go to a cache directory outside the
# repository: SANDBOXCTL_TEST_CACHE, or a directory below XDG_CACHE_HOME.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
driver=$(dirname "$here")
cache=${SANDBOXCTL_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/sandboxctl-opensandbox-test}
work=$(mktemp -d /tmp/osbtest.XXXXXX)
pids=
bridge=
finish() {
	for pid in $pids; do kill "$pid" 2>/dev/null || true; done
	for pid in $pids; do wait "$pid" 2>/dev/null || true; done
	[ -z "$bridge" ] || ip link delete "$bridge" 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
step() { printf '\n== %s\n' "$*"; }
skip() { printf '\nSKIPPED: %s\n' "$*" >&2; }

# await COMMAND...: up to 30 s
await() {
	n=0
	until "$@" >/dev/null 2>&1; do
		n=$((n + 1))
		[ "$n" -lt 150 ] || return 1
		sleep 0.2
	done
}

venv() { # NAME PACKAGE...
	name=$1
	shift
	if [ ! -e "$cache/$name/done" ]; then
		mkdir -p "$cache"
		rm -rf "${cache:?}/$name"
		python3 -m venv "$cache/$name" && "$cache/$name/bin/pip" install -q --disable-pip-version-check "$@" || return 1
		touch "$cache/$name/done"
	fi
}

real_server() {
	[ "$(id -u)" = 0 ] || { skip "the real server needs root to start a Docker Engine"; return; }
	command -v dockerd >/dev/null || { skip "the real server needs dockerd (Debian: docker.io)"; return; }
	venv server opensandbox-server || { skip "opensandbox-server cannot be installed from PyPI"; return; }

	step "the real lifecycle server on a real Docker Engine"
	export DOCKER_HOST="unix://$work/docker.sock"
	# A bridge of its own: another engine on this machine removes docker0 when it stops.
	bridge=osbt$(($$ % 100000))
	ip link add "$bridge" type bridge && ip addr add "10.214.$(($$ % 250)).1/24" dev "$bridge" && ip link set "$bridge" up ||
		{ skip "the real server needs a network bridge, which cannot be made here"; return; }
	dockerd --data-root "$work/data" --exec-root "$work/exec" -H "$DOCKER_HOST" -p "$work/docker.pid" \
		--bridge "$bridge" --iptables=false --ip6tables=false --ip-masq=false --storage-driver vfs >"$work/dockerd.log" 2>&1 &
	pids="$! $pids"
	await docker version || { tail -5 "$work/dockerd.log" >&2; skip "dockerd does not start here"; return; }

	mkdir "$work/image"
	"$here/guest_image.sh" >"$work/guest.tar"
	docker import "$work/guest.tar" sandboxctl-test/guest:1 >/dev/null
	tar -C "$work/image" -xf "$work/guest.tar"
	cp "$work/osbdouble" "$work/image/execd"
	cp "$work/osbdouble" "$work/image/egress"
	cp "$here/bootstrap.sh" "$work/image/"
	tar -C "$work/image" -c . | docker import - sandboxctl-test/execd:1 >/dev/null
	tar -C "$work/image" -c . | docker import --change 'ENTRYPOINT ["/egress"]' - sandboxctl-test/egress:1 >/dev/null

	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	sed "s|@DIR@|$work|; s|@PORT@|$port|" "$here/server.toml" >"$work/server.toml"
	HOME="$work" "$cache/server/bin/opensandbox-server" --config "$work/server.toml" >"$work/server.log" 2>&1 &
	pids="$! $pids"
	await python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health')" ||
		{ tail -20 "$work/server.log" >&2; echo "opensandbox-server does not start" >&2; return 1; }
	version=$("$cache/server/bin/pip" list --disable-pip-version-check 2>/dev/null | awk '$1 ~ /^opensandbox.server$/ {print $2}')

	# The egress double keeps policies but filters nothing, so the cases that probe the network are left out.
	OPENSANDBOX_TEST_SERVER="http://127.0.0.1:$port" OPENSANDBOX_TEST_SERVER_VERSION=$version \
		go test -C "$driver" -count=1 -parallel 4 -timeout 15m -v -run 'TestRealServer' -skip '.*/.*/(network\.|isolation\.network)' . >"$work/real.log" 2>&1 ||
		{ grep -E '^ *--- FAIL|_test\.go|test\.go:' "$work/real.log" >&2; return 1; }
	grep -E '^(ok|PASS)' "$work/real.log"
	grep -cE '^ +--- PASS' "$work/real.log" | sed 's/$/ cases passed on the real server/'
	grep -E '^ +--- SKIP' "$work/real.log" || true
}

double() {
	step "the double"
	OPENSANDBOX_TEST_CONFORMANCE=1 go test -C "$driver" -count=1 -timeout 20m ./...
}

clients() {
	venv clients opensandbox opensandbox-cli || { skip "OpenSandbox's clients cannot be installed from PyPI"; return; }
	step "OpenSandbox's own clients against the double"
	OPENSANDBOX_SERVER_API_KEY=test-key "$work/osbdouble" serve >"$work/address" &
	pids="$! $pids"
	await test -s "$work/address"
	"$cache/clients/bin/python" "$here/vendor_clients.py" "$(cat "$work/address")" test-key "$cache/clients/bin/osb"
}

CGO_ENABLED=0 go build -C "$driver" -o "$work/osbdouble" ./internal/osbdouble/cmd/osbdouble
for what in "${@:-all}"; do
	case $what in
	all) double; clients; real_server ;;
	double) double ;;
	clients) clients ;;
	real) real_server ;;
	*) echo "usage: $0 [double|clients|real]..." >&2; exit 2 ;;
	esac
done
