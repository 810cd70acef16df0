#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Says nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "deps: $*" >&2; exit 1; }

command -v go >/dev/null || fail "Go 1.26 or newer is needed: https://go.dev/dl"

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)             # the race detector links with it
command -v redis-server >/dev/null || missing+=(redis-server)     # what the library's tests run against
command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql) # what a copy of the log is kept in
command -v promtool >/dev/null || missing+=(prometheus)            # what the alerts are tested with
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium) # what the dashboard is looked at with
command -v nginx >/dev/null || [[ -x /usr/sbin/nginx ]] || missing+=(nginx-light) # what the server is put behind
command -v caddy >/dev/null || missing+=(caddy)
command -v haproxy >/dev/null || [[ -x /usr/sbin/haproxy ]] || missing+=(haproxy)
[[ $(uname) == Darwin ]] || command -v systemd-analyze >/dev/null || missing+=(systemd) # what judges the unit of deploy
command -v mandoc >/dev/null || [[ $(uname) == Darwin ]] || missing+=(mandoc) # what judges the manual pages; macOS has it
command -v make >/dev/null || missing+=(make)
java=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' || true)
if ((${java:-0} < 17)); then # Kafka runs on it
	jre=default-jre-headless
	grep -qs 'VERSION_ID="22.04"' /etc/os-release && jre=openjdk-17-jre-headless # the default there is 11
	missing+=("$jre")
fi
command -v mvn >/dev/null || missing+=(maven)                      # fetches Kafka
if ! command -v npm >/dev/null || (($(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p' || true) + 0 < 18)); then # what the TypeScript client runs in; npm fetches its compiler
	missing+=(nodejs npm)
fi
command -v unzip >/dev/null || missing+=(unzip)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip) # packages that hold other versions of Redis
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv) # what the Python client and the site's builder are installed in
if ((${#missing[@]})); then
	if [[ $(uname) == Darwin ]]; then
		fail "please install: xcode-select --install (compiler, make, python3), brew install redis postgresql prometheus nginx caddy haproxy openjdk maven node, brew install --cask google-chrome"
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
	# The tests start servers of their own; the services of these packages are not wanted.
	for service in prometheus postgresql nginx caddy haproxy; do
		if [[ " ${missing[*]} " == *" $service"[\ -]* && -d /run/systemd/system ]]; then
			"${as_root[@]}" systemctl disable --now "$service" >/dev/null 2>&1 || true
		fi
	done
fi

scripts/redis.sh
scripts/kafka.sh
scripts/axe.sh
scripts/mkdocs.sh
scripts/cloudevents.sh

for dir in . tools bench/peers bench/sawtooth/plot tests/browser site tests/cloudevents tests/crash/cut tests/openapi tests/s3test/server; do
	go -C "$dir" mod download
done

# The compiler of the TypeScript client, into npm's cache, where its tests find it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp clients/typescript/package.json clients/typescript/package-lock.json "$work"
for try in 1 2 3; do
	(cd "$work" && npm ci --prefer-offline --ignore-scripts --no-audit --no-fund) >"$work/log" 2>&1 </dev/null && break
	((try < 3)) || { tail -n 20 "$work/log" >&2; fail "npm ci in clients/typescript failed"; }
	sleep 5
done
