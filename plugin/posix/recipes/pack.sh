# $2 is "follow" to archive what links point to.
need tar
links=
if [ -n "$2" ]; then
	links=-h
	[ -e "$p" ] || absent "$p"
fi
[ -e "$p" ] || [ -L "$p" ] || absent "$p"
[ -f "$p" ] || [ -d "$p" ] || [ -L "$p" ] || exit "$not_regular"
case $p in
/ | */ | */. | */..)
	# The entry needs a name of its own.
	[ -d "$p" ] || exit "$not_directory"
	p=$(cd "$p" && pwd -P && echo .) || exit "$permission"
	p=${p%??}
	;;
esac
name=${p##*/}
[ -d "$p" ] && { [ -r "$p" ] || exit "$permission"; }
exec tar -c $links -f - -C "${p%/*}/" -- "${name:-.}"
