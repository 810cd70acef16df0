#!/bin/sh
# After the files of the package are in place: the user, a file of keys that the server may read,
# and systemd's knowledge of the unit. Nothing is started.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers /usr/lib/sysusers.d/weir.conf
fi
if [ ! -e /etc/weir/keys.json ]; then
	# weir key keeps the owner and mode of the file.
	(umask 077 && printf '{"keys": []}\n' >/etc/weir/keys.json)
fi
if getent group weir >/dev/null; then
	chgrp weir /etc/weir
	chmod 0750 /etc/weir
	# Whoever starts the server with flags may have removed the settings.
	for file in /etc/weir/weir.yaml /etc/weir/keys.json; do
		[ ! -e "$file" ] || { chgrp weir "$file" && chmod 0640 "$file"; }
	done
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
