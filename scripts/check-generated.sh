#!/usr/bin/env bash
# Generates into a copy and compares, so that the working tree is never touched.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp plugin/driverpb/v1/driver.proto "$copy"
go run -C plugin/internal/protogen . "$copy"
if ! diff -rq "$copy" plugin/driverpb/v1; then
	echo "The generated files are not fresh; run 'make generate' and commit." >&2
	exit 1
fi
