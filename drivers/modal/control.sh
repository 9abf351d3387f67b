# Acts on the processes of one command: those that carry its mark in their
# environment, and their descendants, which may have cleared theirs.
# Needs nothing but a POSIX shell and /proc, and sleep for a kill.
# Usage: sh control.sh MARK kill | signal NAME | resize ROWS COLUMNS
mark=$1 action=$2
shift 2

# marked PID: the shells drop the NULs between variables when they read.
marked() {
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in *"$mark"*) return 0 ;; esac
	done <"/proc/$1/environ"
	return 1
} 2>/dev/null

# examine PID: sets state and parent. The name before them may hold anything.
examine() {
	read -r stat <"/proc/$1/stat" || return 1
	set -- ${stat##*) }
	state=$1 parent=$2
} 2>/dev/null

contains() { case $1 in *" $2 "*) return 0 ;; *) return 1 ;; esac; }

# collect: sets found to all living processes of the command, and main to those
# of them that it did not start itself. Repeats until nothing is added, because
# a child can have a lower number than its parent.
collect() {
	found=' ' main=
	grown=yes
	while [ "$grown" ]; do
		grown=
		for directory in /proc/[0-9]*; do
			pid=${directory#/proc/}
			if contains "$found" "$pid" || ! examine "$pid"; then continue; fi
			case $state in Z | X) continue ;; esac
			if contains "$found" "$parent"; then
				found="$found$pid " grown=yes
			elif marked "$pid"; then
				found="$found$pid " grown=yes
				marked "$parent" || main="$main $pid"
			fi
		done
	done
}

case $action in
kill)
	tries=0
	while collect && [ "$found" != ' ' ]; do
		kill -s KILL $found 2>/dev/null
		tries=$((tries + 1))
		if [ $tries -gt 20 ]; then
			echo "still running:$found" >&2
			exit 1
		fi
		sleep 0.1 2>/dev/null || sleep 1
	done
	;;
signal)
	collect
	[ -z "$main" ] || kill -s "$1" $main
	;;
resize)
	collect
	for pid in $main; do
		stty -F "/proc/$pid/fd/0" rows "$1" cols "$2"
	done
	;;
esac
