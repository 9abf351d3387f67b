#!/bin/sh
# Stands in for the script that OpenSandbox's execd image brings: start the daemon, then become the entrypoint.
/opt/opensandbox/execd &
exec "$@"
