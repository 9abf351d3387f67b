# Finding and killing the processes of a command in the guest. sbx_me is the shell
# that supervises it.

# scan reads /proc once and sets leader, the command's first process, and all, a
# line of " PID:PARENT:SESSION" for every process that is alive.
scan() {
	all= leader= children=
	for f in /proc/[0-9]*/stat; do
		{ read -r line <"$f"; } 2>/dev/null || continue
		pid=${line%% *}
		set -- ${line##*) }
		[ "$1" = Z ] && continue
		all="$all $pid:$2:$4"
		[ "$2" = "$sbx_me" ] && children="$children $pid "
	done
	for entry in $all; do
		pid=${entry%%:*} rest=${entry#*:}
		case $children in *" ${rest%%:*} "*) [ "${rest#*:}" = "$pid" ] && leader=$pid ;; esac
	done
}

# victims PID prints the processes of the command that began with PID: its session,
# and whatever descends from one of them although it has left the session.
victims() {
	scan
	found=" $1 " again=1
	while [ -n "$again" ]; do
		again=
		for entry in $all; do
			pid=${entry%%:*} rest=${entry#*:}
			case $found in *" $pid "*) continue ;; esac
			case $found in
			*" ${rest%%:*} "*) ;;
			*) [ "${rest#*:}" = "$1" ] || continue ;;
			esac
			found="$found$pid " again=1
		done
	done
	for pid in $found; do
		case $all in *" $pid:"*) printf '%s ' "$pid" ;; esac
	done
}

# kill_all PID kills them until there are none, for a while: they may be forking.
kill_all() {
	target=$1 tries=0
	while list=$(victims "$target"); [ -n "$list" ] && [ $tries -lt 50 ]; do
		kill -KILL $list 2>/dev/null
		tries=$((tries + 1))
		sleep 0.02 2>/dev/null
	done
}

kill_command() {
	scan
	[ -z "$leader" ] || kill_all "$leader"
}
