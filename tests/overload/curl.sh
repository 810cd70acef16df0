#!/bin/bash
# Writes to a queue that does ten jobs a second as fast as curl can, and says what came of
# it. With a second argument of 0 the queue has no wait_slo_ms:
#
#   tests/overload/curl.sh http://127.0.0.1:4000 1000 20
set -eu
base=$1 slo=${2:-1000} seconds=${3:-20}
topic=$base/v0/topics/curl-$RANDOM$RANDOM
ask() { curl -s -H 'Content-Type: application/json' "$@"; }
ask -X PUT "$topic" -d "{\"type\":\"queue\",\"wait_slo_ms\":$slo}" >/dev/null
until=$((SECONDS + seconds))
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

worker() { # one that takes a tenth of a second for a job, and notes how long the job waited
	while :; do
		job=$(ask "$topic/claim" -d '{"node":"w","max":1}')
		seq=$(sed -n 's/.*"\$seq":\([0-9]*\).*/\1/p' <<<"$job")
		at=$(sed -n 's/.*"\$ts":\([0-9]*\).*/\1/p' <<<"$job")
		if [ -z "$seq" ]; then
			[ -e "$log/over" ] && return
			sleep 0.05
			continue
		fi
		echo $(($(date +%s%3N) - at)) >>"$log/waits"
		sleep 0.08 # with the time that two curls take
		ask "$topic/ack" -d "{\"node\":\"w\",\"seqs\":[$seq]}" >/dev/null
		[ -e "$log/over" ] && [ $SECONDS -ge $((until + 60)) ] && return
	done
}

worker &
while [ $SECONDS -lt $until ]; do
	ask -o "$log/answer" -w '%{http_code}\n' "$topic" -d '{"records":[{"data":"x"}]}' >>"$log/answers"
done
touch "$log/over"
stored=$(grep -c 20 "$log/answers" || true) refused=$(grep -c 429 "$log/answers" || true)
waits=$(sort -n "$log/waits" | awk '{ w[NR] = $1 } END { print "p50 " w[int((NR + 1) / 2)] ", p99 " w[int(NR * 0.99)] ", done " NR }')
left=$(ask "$topic?touch=false" | sed -n 's/.*"count":\([0-9]*\).*/\1/p')
echo "wait_slo_ms $slo: $stored stored and $refused refused in $seconds s; a job waited (ms) $waits; $left still there"
wait
left=$(ask "$topic?touch=false" | sed -n 's/.*"count":\([0-9]*\).*/\1/p')
echo "later $left were left"
