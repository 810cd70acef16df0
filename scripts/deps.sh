#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Says nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "deps: $*" >&2; exit 1; }

command -v go >/dev/null || fail "Go 1.26 or newer is needed: https://go.dev/dl"

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)             # the race detector links with it
command -v redis-server >/dev/null || missing+=(redis-server)     # what the library's tests run against
command -v promtool >/dev/null || missing+=(prometheus)            # what the alerts are tested with
command -v make >/dev/null || missing+=(make)
command -v unzip >/dev/null || missing+=(unzip)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip) # packages that hold other versions of Redis
if ((${#missing[@]})); then
	if [[ $(uname) == Darwin ]]; then
		fail "please install: xcode-select --install (compiler, make, python3), brew install redis prometheus"
	fi
	command -v apt-get >/dev/null || fail "please install: ${missing[*]}"
	as_root=()
	if ((EUID != 0)); then
		command -v sudo >/dev/null || fail "please install as root: apt-get install ${missing[*]}"
		as_root=(sudo)
	fi
	log=$(mktemp)
	echo "deps: installing ${missing[*]}"
	"${as_root[@]}" apt-get update -qq >"$log" 2>&1 || { cat "$log" >&2; fail "apt-get update failed"; }
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1 ||
		{ cat "$log" >&2; fail "apt-get install ${missing[*]} failed"; }
	rm -f "$log"
	# The tests start a Prometheus of their own; the package's service is not wanted.
	if [[ " ${missing[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
		"${as_root[@]}" systemctl disable --now prometheus >/dev/null 2>&1 || true
	fi
fi

scripts/redis.sh

for dir in . tools bench/peers bench/sawtooth/plot tests/crash/cut; do
	go -C "$dir" mod download
done
