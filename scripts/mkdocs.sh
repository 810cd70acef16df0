#!/usr/bin/env bash
# Installs what builds the documentation site, as site/requirements.txt pins it,
# into ${XDG_CACHE_HOME:-~/.cache}/weir/mkdocs/<digest of that file>, where
# scripts/site.sh looks for it. It comes from the index that pip is configured
# for. Says nothing when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

sum=$(git hash-object site/requirements.txt)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/weir/mkdocs/${sum::12}
[[ -f $dir/complete ]] && exit 0

echo "mkdocs: installing $(sed -n 's/^mkdocs-material==/mkdocs-material /p' site/requirements.txt)" >&2
mkdir -p "$(dirname "$dir")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for try in 1 2 3; do
	rm -rf "$dir" # an environment knows its path, so it is made where it stays
	python3 -m venv "$dir" >"$log" 2>&1 </dev/null &&
		"$dir/bin/pip" --disable-pip-version-check --no-input install -q --only-binary :all: -r site/requirements.txt >>"$log" 2>&1 </dev/null && break
	((try < 3)) || { tail -n 20 "$log" >&2; echo "mkdocs: the installation failed" >&2; exit 1; }
	sleep 5
done
touch "$dir/complete"
