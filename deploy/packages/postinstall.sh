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
	chgrp weir /etc/weir /etc/weir/weir.yaml /etc/weir/keys.json
	chmod 0750 /etc/weir
	chmod 0640 /etc/weir/weir.yaml /etc/weir/keys.json
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
