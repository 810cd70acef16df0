#!/usr/bin/env bash
# Runs every fuzz target of the repository for the given time, one at a time.
# What it finds stays in that package's testdata/fuzz and is from then on a test.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:?usage: scripts/fuzz.sh TIME, for example 10s}
grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file target; do
	go test -run '^$' -fuzz "^${target#func }\$" -fuzztime "$time" "$(dirname "$file")" </dev/null
done
