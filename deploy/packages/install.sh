#!/bin/sh
# Puts what the deb and the rpm hold below DESTDIR (unset: the system itself): bin/weir, its manual
# pages and completions, which make has built, and the unit. Settings that are there stay. On the
# system itself it then does what the packages do after theirs. Run by make install.
set -e
cd "$(dirname "$0")/../.."

put() { # mode, file, where it goes
	mkdir -p "$DESTDIR$(dirname "$3")"
	install -m "$1" "$2" "$DESTDIR$3"
}

put 755 bin/weir /usr/bin/weir
put 644 deploy/systemd/weir.service /usr/lib/systemd/system/weir.service
put 644 deploy/systemd/credentials.conf /usr/share/doc/weir/credentials.conf
put 644 deploy/systemd/weir.sysusers /usr/lib/sysusers.d/weir.conf
[ -e "$DESTDIR/etc/weir/weir.yaml" ] || put 644 deploy/systemd/weir.yaml /etc/weir/weir.yaml
put 644 LICENSE /usr/share/doc/weir/copyright
for page in bin/man/*.1; do
	put 644 "$page" "/usr/share/man/man1/$(basename "$page")"
done
put 644 bin/completions/weir.bash /usr/share/bash-completion/completions/weir
put 644 bin/completions/weir.zsh /usr/share/zsh/vendor-completions/_weir
put 644 bin/completions/weir.fish /usr/share/fish/vendor_completions.d/weir.fish
[ -n "$DESTDIR" ] || sh deploy/packages/postinstall.sh
