# In front of every recipe. $1 is the path in the notation of printf %b.
LC_ALL=C
export LC_ALL
unset TAR_OPTIONS POSIXLY_CORRECT CDPATH

# Exit statuses; errors.go has the same.
missing=81 is_directory=82 not_directory=83 not_regular=84 permission=85
no_tool=86 incomplete=87 too_large=88

# The dot keeps newlines at the end of a name from the substitution's trimming.
p=$(printf '%b.' "$1")
p=${p%.}

need() {
	for tool; do
		command -v "$tool" >/dev/null 2>&1 && continue
		echo "$tool" >&2
		exit "$no_tool"
	done
}

# absent exits with the reason why the path $1 cannot be seen.
absent() {
	d=$1
	until [ -e "$d" ] || [ -L "$d" ]; do
		d=${d%/*}
		[ -n "$d" ] || d=/
	done
	[ ! -e "$d" ] || [ -d "$d" ] || exit "$not_directory"
	[ ! -d "$d" ] || [ -x "$d" ] || exit "$permission"
	exit "$missing"
}

# resolve follows the links at the end of $p, dangling ones too, which readlink -f
# does not do everywhere.
resolve() {
	links=0
	while [ -L "$p" ]; do
		links=$((links + 1))
		[ "$links" -le 40 ] || exit "$missing"
		to=$(readlink "$p" && echo .) || absent "$p"
		to=${to%??}
		case $to in
		/*) p=$to ;;
		*) p=${p%/*}/$to ;;
		esac
	done
}

# make_directory makes $1 and its parents.
make_directory() {
	[ ! -d "$1/" ] || return 0
	[ ! -e "$1" ] || exit "$not_directory"
	d=$1
	until [ -e "$d" ] || [ -L "$d" ]; do
		d=${d%/*}
		[ -n "$d" ] || d=/
	done
	[ ! -e "$d" ] || [ -d "$d" ] || exit "$not_directory"
	mkdir -p "$1/" || exit 1
}

# receive keeps stdin in the file $1, without the trailer. $2 is its token.
receive() {
	# Content may be secret until it has its own permissions.
	umask 077
	trap 'rm -f "$t"' EXIT
	trap 'exit "$incomplete"' HUP INT TERM
	t=$1
	cat >"$t" || exit 1
	length=$(($(stat -c %s "$t") - 49))
	[ "$length" -ge 0 ] || exit "$incomplete"
	[ "$(tail -c 49 "$t" 2>/dev/null)" = "$2 $(printf %016d "$length")" ] || exit "$incomplete"
	# dd cuts the file where it would begin to write.
	dd if=/dev/null of="$t" bs=1 seek="$length" 2>/dev/null || exit 1
}

