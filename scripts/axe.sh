#!/usr/bin/env bash
# Installs axe-core, which judges whether the dashboard can be used by everybody,
# into ${XDG_CACHE_HOME:-~/.cache}/weir/axe/<version>, where tests/browser looks
# for it. It comes by npm, or without npm out of a Python package that carries
# the same file and a line feed. Says nothing when it is there.
set -euo pipefail

version=4.12.1
sum=66a8aaa95a8b044a7fd74a5435873bf04ff65a1ca75567c921b7509742085a14 # of axe.min.js
wheel=axe-playwright-python==0.1.8

dir=${XDG_CACHE_HOME:-$HOME/.cache}/weir/axe/$version
[[ -d $dir ]] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# npm_pack and pip_download leave axe.min.js in this folder.
npm_pack() {
	command -v npm >/dev/null && npm pack --silent "axe-core@$version" &&
		tar -xzf axe-core-*.tgz --strip-components 1 package/axe.min.js
}
pip_download() {
	python3 -m pip --disable-pip-version-check --no-input download -q --no-deps --only-binary :all: "$wheel" &&
		python3 -c 'import glob, zipfile; open("axe.min.js", "wb").write(zipfile.ZipFile(glob.glob("*.whl")[0]).read("axe_playwright_python/axe.min.js").rstrip())'
}

echo "axe: installing $version"
for try in 1 2 3; do
	{ npm_pack || pip_download; } >log 2>&1 </dev/null && break
	((try < 3)) || { tail -n 20 log >&2; echo "axe: the download failed" >&2; exit 1; }
	sleep 5
done
got=$(sha256sum axe.min.js | cut -d ' ' -f 1)
[[ $got == "$sum" ]] || { echo "axe: what was downloaded is not axe-core $version: its SHA-256 is $got" >&2; exit 1; }
mkdir -p "$dir.new" && cp axe.min.js "$dir.new" && mv "$dir.new" "$dir"
