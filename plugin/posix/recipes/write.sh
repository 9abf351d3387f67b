# $2 is the mode of a new file, $3 the upload's token.
need cat chmod chown dd mkdir mv readlink rm stat tail
resolve
[ ! -d "$p" ] || exit "$is_directory"
mode=$2
owner=
if [ -e "$p" ]; then
	[ -f "$p" ] || exit "$not_regular"
	if [ ! -w "$p" ]; then
		# Opening it makes the shell say whether it is the file or the file system.
		(: >>"$p")
		exit 1
	fi
	mode=$(stat -c %a "$p") && owner=$(stat -c %u:%g "$p") || exit 1
fi
case $p in */) exit "$is_directory" ;; esac
make_directory "${p%/*}"
receive "${p%/*}/.sandboxctl-$3" "$3"
# Only root can keep another's ownership. It goes first: it clears set-id bits.
[ -z "$owner" ] || chown "$owner" "$t" 2>/dev/null
chmod "$mode" "$t" && mv -f "$t" "$p"
