#!/usr/bin/env bash
# Runs the named parts of the test suite, each under a heading and followed by its
# time. Every part runs even if one before it failed; the exit status is 1 if any did.
#
#	scripts/test.sh race cli beside kafka beside idly sweep sim then bench
#
# runs race and cli one after the other, beside them kafka, and bench once all three are
# over; from the start sweep and sim, one after the other, in the time that the others leave
# idle. What runs beside others is printed when it ends.
#
# Parts that start servers run one package at a time (-p 1), so that they do not
# fight for the machine, and uncached (-count=1), because Go's test cache does
# not see the binary they drive.
set -uo pipefail
cd "$(dirname "$0")/.."

# Everything is built as make build does, so once. The race detector alone needs cgo; what
# its tests build, they build without. make lint vets all of it, so go test need not.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -tags=grpcnotrace -vet=off"
detector=(-race -exec 'env CGO_ENABLED=0')

modules=(. bench/peers tests/s3test/server bench/sawtooth/plot tests/browser site tests/crash/cut tests/openapi tests/cloudevents)
staticcheck() { go tool -modfile=tools/go.mod staticcheck "$@"; }

# The limit is there to end what hangs: what runs beside others, or idly, takes several times
# as long as alone.
limit=(-timeout 25m)
driven() { go test -count=1 -p 1 "${limit[@]}" "$@"; }

lint() {
	local status=0 unformatted
	unformatted=$(gofmt -l .)
	if [[ -n $unformatted ]]; then
		echo "not formatted, run gofmt -w:"
		echo "$unformatted"
		status=1
	fi
	for dir in "${modules[@]}"; do
		go -C "$dir" vet ./... || status=1
	done
	staticcheck ./... || status=1
	return $status
}

layout() { go test .; }
unit() { go test . ./config ./telemetry ./telemetry/tracing ./backend ./backend/backendtest ./backend/embedded ./backend/internal/... ./backend/redis ./backend/remote ./backend/shard ./internal/... ./cmd/...; }

# apart are tests in which nothing runs at once, and which the race detector would make a
# minute long each. sweep has them.
apart='TakesLittleMemory|Take(s)?NoMemory|TestTheMemoryOf|TestATopicAtRest|TestThePageOfTenThousand|TestKeysPastTheirWindow|TestRewriteKeepsExactly|ReadBackAsTheModelSays|TestAQueueWithAWaitSLO|TestGoodputIsKept|TestTheOrderOfClaimsHolds|TestManyDeadJobs|TestMarkedDamageAt|TestWhateverTheWallClock|TestAClockSetBackWhile|TestAClockSteppedBefore|TestAClaimHandsOutNoMore|TestAWorkStreamGetsWhatDid|TeachesNothingThoughNobody'

# race holds what runs inside one process and has no short leases.
race() { CGO_ENABLED=1 go test "${detector[@]}" -skip "$apart" "${limit[@]}" ./internal/... ./cmd/... ./config ./open ./telemetry ./telemetry/tracing ./tests/stall ./tests/bubble ./tests/crashfs ./tests/leak ./tests/postgrestest; }

# sweep tries every crash point and every damage of the engine, the store and the log, of which race tries a part.
sweep() {
	driven -run "$apart"'|TestSweep|TestEveryVerb|TestAReadThatFails|TestRot|TestFlipped|TestNoFlipped|TestNoTruncation|TestASegmentWithAnyDamaged|TestADamagedManifest|TestDamagedFormat|TestABackupOfABusy|TestASynchronousServerTakes|TestWhatALostMachine' \
		./internal/engine ./internal/engine/queue ./internal/store ./internal/wal ./internal/server ./internal/admission
}

# counted are tests of the library in which nothing that the others leave out runs at once, and
# which take ten seconds each with the race detector. twin has them.
counted='TestAutoWorkers(Shrink|Find|Grow)'

# library is the library in one process, beside every server there is: the suite
# that all backends pass, the faults of Redis, and in the root the layout test. Its
# leases are short, so it runs by itself. The root's tests are in virtual time; the others
# mostly wait for servers: more of them run at once than there are processors, two packages
# beside the root.
library() {
	local status=0 root
	root=$(mktemp)
	CGO_ENABLED=1 driven "${detector[@]}" -skip "$counted" -parallel 4 . >"$root" 2>&1 &
	CGO_ENABLED=1 driven -p 2 "${detector[@]}" -parallel 3 ./backend/embedded ./backend/internal/... ./backend/redis ./backend/remote ./backend/shard ./examples/... ./tests/redistest || status=1
	wait $! || status=1
	cat "$root"
	rm -f "$root"
	return $status
}

# kafka is the backend on a real broker, killed and restarted.
kafka() { CGO_ENABLED=1 driven "${detector[@]}" -parallel 3 ./backend/kafka ./tests/kafkatest; }

# live is the library as built commands on real servers. It prints what it measured. Those
# tests run at once, at its end, that kill Kafka's brokers and wait for them.
live() { (cd tests/library && driven -v -parallel 3 ./...); }

# oracle holds what judges other tests: that it finds planted faults, most of which it waits for.
oracle() { go test -parallel 8 ./tests/oracle/... ./tests/process ./tests/crash/rounds/... ./backend/backendtest; }

# sim is the whole engine in virtual time; without the race detector, for more seeds.
sim() { driven ./tests/sim -seeds 24; }

# twin judges the guards under too much load, in virtual time; race skips it, as library does
# the number of workers that a pool finds by itself.
twin() {
	local status=0
	driven ./internal/overload || status=1
	driven -run "$counted" . || status=1
	return $status
}

# contract runs in its folder: only there go test shows the number of cases of a
# run that passed. What went over the wire is then compared with the OpenAPI document.
contract() {
	local status=0 record
	record=$(mktemp -d)
	(cd tests/contract && WEIR_CONTRACT_RECORD=$record driven) || status=1
	(cd tests/openapi && WEIR_CONTRACT_RECORD=$record driven) || status=1
	rm -rf "$record"
	return $status
}

# cli is the built commands, and what puts them on a machine. Its tests mostly wait for them.
cli() { driven -parallel 6 ./tests/cli ./tests/deploy; }

# clients are those in other languages, packed, installed and run by what runs them, and
# the SDKs of CloudEvents.
clients() {
	local status=0
	driven -parallel 4 ./tests/clients/... || status=1
	(cd tests/cloudevents && driven ./...) || status=1
	return $status
}

overload() { driven ./tests/overload ./tests/relay ./tests/soak; }

# crash kills servers and waits for them, so both packages run at once.
crash() { driven -p 2 ./tests/crash ./tests/replica; }

# push runs in its folder too: its tables are worth reading.
push() { (cd tests/push && driven ./...); }

# browser is the dashboard in Chromium. Its tests mostly wait, so all run at once.
browser() { (cd tests/browser && driven -parallel 16 ./...); }

# site is the documentation: built, its links followed, looked at in Chromium, and what it
# tells a reader to type typed.
site() { (cd site && driven -parallel 4 ./...); }

bench() { driven ./bench/...; }

# cross: all has to build on macOS too. tests/crash/cut, a module of its own, needs FUSE.
cross() {
	local status=0
	go build -o /dev/null ./cmd/weir || status=1
	GOOS=darwin go build -o /dev/null ./cmd/weir || status=1
	GOOS=darwin go vet ./... || status=1
	return $status
}

# vuln needs vuln.go.dev. A machine that cannot reach it cannot be judged, and
# says so; anything else that govulncheck reports is a failure.
vuln() {
	local out status=0
	out=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1) || status=$?
	if ((status)) && grep -q 'fetching vulnerabilities' <<<"$out"; then
		echo "vuln: not checked, the vulnerability database cannot be reached from here"
		return 0
	fi
	echo "$out"
	return $status
}

# run does the parts of a lane, one after the other.
run() {
	local part begin status took TIMEFORMAT='%U %S'
	for part in "$@"; do
		begin=$SECONDS status=passed
		echo "=== $part"
		{ time "$part" </dev/null 2>&1 | tee "$results.$part"; } 2>"$results.cpu.$part" || status=FAILED
		took="$((SECONDS - begin)) s, $(awk '{ printf "%.0f", $1 + $2 }' "$results.cpu.$part") s of CPU"
		echo "=== $part $took"
		echo "$part $took $status" >>"$results"
	done
}

# run_quietly is run, whose parts show what they print once they are over.
run_quietly() {
	local part
	for part in "$@"; do
		run "$part" >"$results.whole.$part" 2>&1
		cat "$results.whole.$part"
	done
}

# run_beside runs lanes at once: their parts, with the word beside between them. Each is a
# process group of its own, so that all of it ends if this script is interrupted. A lane that
# begins with the word idly yields the processors to the others and to what comes then, so its
# parts take several times as long as alone; nothing waits for it but the end.
run_beside() {
	local lane=() word others=()
	set -m
	for word in "$@" beside; do
		if [[ $word != beside ]]; then
			lane+=("$word")
			continue
		fi
		if [[ ${lane[0]} == idly ]]; then
			(renice -n 19 "$BASHPID" >/dev/null; run_quietly "${lane[@]:1}") &
		else
			run_quietly "${lane[@]}" &
			others+=($!)
		fi
		lane=()
	done
	set +m
	wait "${others[@]}"
}

stop() {
	local group
	for group in $(jobs -p); do kill -TERM -- "-$group"; done
	exit 130
}

results=$(mktemp)
trap 'rm -f "$results" "$results".*' EXIT
trap stop INT TERM
stage=()
for word in "$@" then; do
	if [[ $word != then ]]; then
		stage+=("$word")
	elif [[ " ${stage[*]} " == *" beside "* ]]; then
		run_beside "${stage[@]}"
		stage=()
	else
		run "${stage[@]}"
		stage=()
	fi
done
wait # for what runs idly

printf '\n'
sed -n 's/^\(.*\) [a-zA-Z]*$/time: \1/p' "$results"
if grep -q FAILED "$results"; then
	failed=$(sed -n 's/^\([a-z]*\) .* FAILED$/\1/p' "$results")
	for part in $failed; do
		printf '\n=== %s failed:\n' "$part"
		grep -E -A 4 '^ *--- FAIL|^FAIL|^panic: |^fatal error: |^WARNING: DATA RACE|^SIG|: exit status' "$results.$part" | cut -c -300 | head -n 60
	done
	echo "FAILED: ${failed//$'\n'/ }"
	exit 1
fi
echo "all parts passed in $SECONDS s: $*"
