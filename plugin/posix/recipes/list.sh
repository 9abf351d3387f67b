[ -e "$p" ] || absent "$p"
[ -d "$p" ] || exit "$not_directory"
[ -r "$p" ] && [ -x "$p" ] || exit "$permission"
cd "$p" || exit

# GNU find says everything at once.
if find . -prune -printf '' >/dev/null 2>&1; then
	echo find
	find . -ignore_readdir_race -mindepth 1 -maxdepth 1 -printf '%y %s %m %T@ %f\0%l\0'
	exit
fi

need readlink stat xargs
echo stat
for f in ./* ./.[!.]* ./..?*; do
	if [ -L "$f" ]; then
		printf '%s\0' "$f"
		readlink "$f" || exit
		printf '\0'
	fi
done
printf '\0'
# Without find the names come from the shell, and stat takes as many as fit at once.
# A slash ends a record, since no name has one.
for f in ./* ./.[!.]* ./..?*; do
	if [ -e "$f" ] || [ -L "$f" ]; then
		printf '%s\0' "$f"
	fi
done | xargs -0 -r stat -c '%f %s %Y %n/'
