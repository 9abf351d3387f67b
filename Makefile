# Every target works on a fresh machine with Go; `make help` lists them.
SHELL := /bin/bash
export CGO_ENABLED ?= 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
COMMIT  := $(shell git rev-parse --short HEAD 2>/dev/null)
DATE    := $(shell git log -1 --format=%cI 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE) \
	$(foreach d,local sbx opensandbox modal,-X github.com/sandboxctl/sandboxctl/drivers/$(d).version=$(VERSION))

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.12.7
PROGRAMS := ./cmd/sandboxctl $(wildcard ./drivers/*/cmd/sandboxctl-*)

.PHONY: help build test test-conformance test-modal test-opensandbox test-airflow test-crashes test-unified conformance demo bench snapshot ci generate check-generated format vet lint cross test-setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build sandboxctl and its drivers into bin/
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS)

demo: build ## create a sandbox and show what it can do
	@examples/demo.sh bin/sandboxctl

# The suite on every driver takes minutes and has a target of its own. Without GORACE,
# every process built for the race detector sleeps for a second at its end. Most tests
# wait for a clock more than for a processor, so more run at once than there are.
test: test-setup ## install what the tests need and run them
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race -parallel 4 -skip '^TestConformance' ./...

test-conformance: ## run the conformance suite on every driver here
	@scripts/conformance.sh

test-modal: ## run Modal's own clients against the double of its service
	drivers/modal/testing/vendor-clients.sh

test-opensandbox: test-setup ## run OpenSandbox's own clients and server
	drivers/opensandbox/testing/test-opensandbox.sh clients real

test-airflow: build ## run the examples in a real Airflow
	examples/airflow/test.sh

test-crashes: build ## kill sandboxctl and its drivers at hundreds of random moments
	SANDBOXCTL_TEST_CRASHES=500 go test -count=1 -timeout 60m -run 'TestRandomCrashes|TestSignals|TestManyProcesses' ./internal/cli

# Five minutes, since it is emulated; needs root.
test-unified: ## check the local driver's limits with control groups of version 2, in a virtual machine
	@scripts/test-setup.sh busybox:busybox ip:iproute2 python3:python3 qemu-system-x86_64:qemu-system-x86
	drivers/local/testing/unified-vm.sh

conformance: ## run it and write docs/conformance.md
	@scripts/conformance.sh write

# Six minutes on two cores; goreleaser itself is another few the first time.
snapshot: ## build everything of a release for all systems, and look into it
	-@scripts/test-setup.sh rpm:rpm
	go run $(GORELEASER) release --snapshot --clean --skip=publish
	SANDBOXCTL_TEST_SNAPSHOT=$(CURDIR)/dist go test -count=1 -v -run '^TestSnapshot' ./internal/packaging

test-setup: build
	@scripts/test-setup.sh

bench: build ## measure against the budgets in docs/performance.md
	go run ./scripts/bench -bin bin -markdown docs/performance.md

generate: ## make the generated files anew
	go run -C plugin/internal/protogen . $(CURDIR)/plugin/driverpb/v1
	go run ./internal/cli/generate schemas docs/schema
	go run ./internal/cli/generate completions completions

check-generated:
	@scripts/check-generated.sh

format:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }

vet:
	go vet ./...

lint:
	go run $(STATICCHECK) ./...

cross: ## check that everything compiles for the other systems, which make snapshot builds for
	@go run ./scripts/typecheck darwin/arm64 windows/amd64 linux/arm64

ci: format vet lint check-generated cross test test-conformance test-modal test-opensandbox test-airflow ## everything that a change has to pass

clean:
	rm -rf bin dist
