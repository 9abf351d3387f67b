#!/usr/bin/env bash
# Runs the conformance suite on every driver here, against the most real thing that
# runs without an account. With "write" it makes docs/conformance.md of the results.
# The drivers are tested at the same time, since the suites mostly wait.
set -euo pipefail
cd "$(dirname "$0")/.."
export OPENSANDBOX_TEST_CONFORMANCE=1
if [ "${1:-}" = write ]; then
	export SANDBOXCTL_CONFORMANCE_REPORTS=$PWD/plugin/conformance/reports
fi
CGO_ENABLED=0 go test -count=1 -p 4 -timeout 40m -run '^TestConformance' ./drivers/... ./examples/driver-...
if [ "${1:-}" = write ]; then
	go run ./plugin/conformance/internal/matrix >docs/conformance.md
fi
