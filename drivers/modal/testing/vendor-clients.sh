#!/bin/sh
# Runs Modal's own Python and JavaScript clients against the double. If they
# cannot use it, the double is wrong. Needs python3 with venv, node 20 and npm;
# the clients are kept in a cache directory between runs.
set -eu

python_client=modal==1.5.4
# Plain "modal" on npm is another package; this version is Modal's.
js_client=modal@0.11.1

here=$(cd "$(dirname "$0")" && pwd)
cache=${SANDBOXCTL_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/sandboxctl-tests}/modal-clients
work=$(mktemp -d)
server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	[ -z "$server" ] || wait "$server" 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

venv=$cache/$python_client
if [ ! -e "$venv/installed" ]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check "$python_client"
	touch "$venv/installed"
fi
js=$cache/$js_client
if [ ! -e "$js/installed" ]; then
	mkdir -p "$js"
	echo '{"private": true}' >"$js/package.json"
	(cd "$js" && npm install --silent --no-audit --no-fund "$js_client")
	touch "$js/installed"
fi

(cd "$here" && go build -o "$work/modaldouble" ../internal/modaldouble/cmd/modaldouble)
mkfifo "$work/environment" "$work/lifeline"
"$work/modaldouble" <"$work/lifeline" >"$work/environment" &
server=$!
exec 3>"$work/lifeline"
while IFS= read -r assignment && [ -n "$assignment" ]; do
	export "${assignment?}"
done <"$work/environment"

echo "== $python_client"
"$venv/bin/python" "$here/check.py"
echo "== $js_client"
MODAL_JS_DIR=$js node "$here/check.mjs"
echo "both clients accept the double"
