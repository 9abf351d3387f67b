# $2 is "follow" to look at what a link points to.
need readlink stat
if [ -n "$2" ]; then
	[ -e "$p" ] || absent "$p"
	stat -L -c '%f %s %Y' "$p"
	exit
fi
[ -e "$p" ] || [ -L "$p" ] || absent "$p"
stat -c '%f %s %Y' "$p" || exit
[ ! -L "$p" ] || readlink "$p"
