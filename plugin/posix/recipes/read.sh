# $2 is the most bytes to give, empty for no limit.
need cat head stat
[ ! -d "$p" ] || exit "$is_directory"
[ -e "$p" ] || absent "$p"
[ -f "$p" ] || exit "$not_regular"
[ -r "$p" ] || exit "$permission"
[ -n "$2" ] || exec cat <"$p"
size=$(stat -Lc %s "$p") || exit 1
if [ "$size" -gt "$2" ]; then
	echo "$size $2" >&2
	exit "$too_large"
fi
# One more than allowed shows that there is more.
exec head -c "$(($2 + 1))" <"$p"
