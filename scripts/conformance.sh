#!/usr/bin/env bash
# Runs the conformance suite on every driver here, against the most real thing that
# runs without an account. With "write" it makes docs/conformance.md of the results.
# Two drivers are tested at a time, since the suites mostly wait; more make each other wait
# for processors so long that limits of time pass.
set -euo pipefail
cd "$(dirname "$0")/.."
export OPENSANDBOX_TEST_CONFORMANCE=1
if [ "${1:-}" = write ]; then
	export SANDBOXCTL_CONFORMANCE_REPORTS=$PWD/plugin/conformance/reports
fi
CGO_ENABLED=0 go test -count=1 -p 2 -parallel 4 -timeout 40m -run '^TestConformance' ./drivers/... ./examples/driver-...
if [ "${1:-}" = write ]; then
	go run ./plugin/conformance/internal/matrix >docs/conformance.md
fi
