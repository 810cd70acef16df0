#!/bin/sh
# Before the package goes for good ("remove" from dpkg, 0 from rpm): an upgrade leaves the server
# running until it is restarted. The data directory and the keys stay.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
	if [ -d /run/systemd/system ]; then
		systemctl disable --now weir.service || true
	fi
fi
