#!/usr/bin/env bash
# Installs the SDKs of CloudEvents for Python and JavaScript into
# ${XDG_CACHE_HOME:-~/.cache}/weir/cloudevents, where tests/cloudevents looks for
# them; the one for Go is in the go.mod there. Says nothing when they are there.
set -euo pipefail

python=2.2.0
javascript=10.0.0

cache=${XDG_CACHE_HOME:-$HOME/.cache}/weir/cloudevents
mkdir -p "$cache"

# install NAME COMMAND…: a folder of the cache that the command fills, given its name.
install() {
	local dir=$cache/$1
	shift
	[[ -d $dir ]] && return
	echo "cloudevents: installing ${dir##*/}"
	local log
	log=$(mktemp)
	rm -rf "$dir.new"
	for try in 1 2 3; do
		"$@" "$dir.new" >"$log" 2>&1 </dev/null && break
		((try < 3)) || { tail -n 20 "$log" >&2; echo "cloudevents: the download failed" >&2; exit 1; }
		sleep 5
	done
	rm -f "$log"
	mv "$dir.new" "$dir"
}

pip_install() { python3 -m pip --disable-pip-version-check --no-input install -q --target "$1" "cloudevents==$python"; }
npm_install() { npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$1" "cloudevents@$javascript"; }

install python pip_install
install javascript npm_install
