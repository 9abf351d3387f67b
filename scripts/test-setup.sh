#!/usr/bin/env bash
# Installs what the tests use beyond Go: a second shell for the file recipes, a Python
# that runs in sandboxes, namespaces for the doubles, the shells that completions are for,
# a terminal to look at, bubblewrap for an example, and a Docker Engine, which the tests
# start by themselves, for OpenSandbox's real server. With arguments, each COMMAND:PACKAGE,
# it installs those instead.
set -euo pipefail

[ $# -gt 0 ] || set -- busybox:busybox python3:python3 tar:tar ip:iproute2 unshare:util-linux dockerd:docker.io \
	iptables:iptables zsh:zsh fish:fish tmux:tmux bwrap:bubblewrap
missing=()
for tool in "$@"; do
	command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "The tests also use: ${missing[*]}. Please install them." >&2
	exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -qq -y "${missing[@]}" >/dev/null
