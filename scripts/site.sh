#!/usr/bin/env bash
# Builds the documentation site: scripts/site.sh DIR. Every link in it has to lead
# somewhere, or the build fails. WEIR names the binary whose help is its page of
# commands; without it one is built. SITE_DOCS names another folder of pages.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:?usage: scripts/site.sh DIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
scripts/mkdocs.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z ${WEIR:-} ]]; then
	WEIR=$work/weir
	CGO_ENABLED=0 go build -tags grpcnotrace -o "$WEIR" ./cmd/weir # as the tests build theirs
fi
go -C site run ./commands "$WEIR" >"$work/commands"
sum=$(git hash-object site/requirements.txt)
SITE_COMMANDS=$work/commands "${XDG_CACHE_HOME:-$HOME/.cache}/weir/mkdocs/${sum::12}/bin/mkdocs" \
	build --strict -f site/mkdocs.yml -d "$out" >"$work/log" 2>&1 || { grep -v INFO "$work/log" >&2; exit 1; }
