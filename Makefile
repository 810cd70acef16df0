# Everything that is done to this repository is a target here; `make` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The tools are pinned by a module of their own, so that weir's stays lean.
TOOL := go tool -modfile=tools/go.mod
# Fuzzing time per target, and the sizes of the long loops.
FUZZTIME ?= 10s
KILLS ?= 300
CUTS ?= 40
CHAOS ?= 4m
SIM ?= 8m
OVERLOAD ?= 8m

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what is missing (apt on Linux); silent when nothing is
	@scripts/deps.sh

.PHONY: build
build: ## build bin/weir, static, without cgo
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -o bin/weir ./cmd/weir

.PHONY: man
man: ## write the manual pages into bin/man and the completions into bin/completions
	@rm -rf bin/man bin/completions && mkdir -p bin/man bin/completions
	@go run ./cmd/weir man bin/man
	@for shell in bash zsh fish; do go run ./cmd/weir completion $$shell >bin/completions/weir.$$shell || exit 1; done

.PHONY: install
install: ## as root: what the deb and the rpm hold, for make build and make man before it; DESTDIR=FOLDER: below it
	@DESTDIR=$(DESTDIR) sh deploy/packages/install.sh

.PHONY: check
check: ## gofmt, vet, staticcheck, layout and unit tests: before every commit
	@scripts/test.sh lint unit

.PHONY: test
test: deps ## every test: race, crash points, library, kafka, live, contract, commands, clients, overload, crash, push, the dashboard and the documentation in Chromium, bench at a tiny size
	@scripts/test.sh race oracle clients browser site beside kafka contract cli bench beside idly sweep sim twin then library then live beside crash then overload push

.PHONY: lint
lint: ## gofmt, vet and staticcheck
	@scripts/test.sh lint

.PHONY: site
site: ## build the documentation into dist/site, with every link checked
	@scripts/site.sh dist/site
	@echo "dist/site/index.html; with its search: python3 -m http.server -b 127.0.0.1 -d dist/site"

.PHONY: vuln
vuln: ## look the dependencies up in Go's vulnerability database
	@scripts/test.sh vuln

.PHONY: cross
cross: ## vet and build for linux and macOS
	@scripts/test.sh cross

.PHONY: bench
bench: deps ## the whole benchmark beside its peers, and the guards in virtual time; writes bench/out/bench.json
	go run ./bench/cmd/weirbench
	go run ./bench/kafka
	go run ./bench/copied
	go run ./bench/clients
	go test -count=1 -timeout 30m ./internal/overload -run '^TestTwin$$' -v -arm off,static,proportional,adaptive
	go test -count=1 -timeout 30m ./internal/overload -run '^TestTwinSensitivity$$' -v -arm adaptive
	go test -count=1 ./internal/admission -run '^TestTable$$' -v -table

.PHONY: saturation
saturation: ## more load than the machine can do for 20 s, and a stalled reader; prints what happens
	go run ./tests/push/saturation -bulk 256 -low 4000
	go run ./tests/push/slow

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: deps ## KILLS (300) kill -9 rounds, CUTS (40) power cuts (needs /dev/fuse), CHAOS (4m) on a real Redis and for each type of group on a real Kafka, SIM (8m) of simulation, OVERLOAD (8m) each on the engine and on Redis, a minute per fuzz target
	go run ./tests/crash/kill -n $(KILLS)
	go test ./tests/replica -count=1 -timeout 8h -parallel 4 -v -rounds $(KILLS) -zombies 100 -nap 60s -takeovers 20 -failover-after 15s -away 10m
	go test ./internal/replica/restore -count=1 -run Point -points 1000
	cd tests/contract && WEIR_CONTRACT_COPIED=1 go test -count=1 -timeout 2h -run TestContractWithACopy
	go run ./tests/library/chaos -d $(CHAOS)
	go test -count=1 -timeout 0 ./tests/library -run AgainAndAgain -v -chaos $(CHAOS)
	cd tests/crash/cut && go run . -n $(CUTS)
	go test -count=1 -timeout 0 ./tests/sim -run '^TestSimulation$$' -v -for $(SIM) -first $$(date +%s)
	go run ./tests/soak -on embedded -d $(OVERLOAD)
	go run ./tests/soak -on redis -d $(OVERLOAD)
	@scripts/fuzz.sh 1m
