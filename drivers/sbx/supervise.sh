# Runs one command in the guest, reports its end, and kills it with all that it
# started at a deadline, on request, or when the driver goes away. It follows
# announce.sh, tree.sh and lines that set
#   sbx_t, sbx_g   deadline and time between TERM and KILL, in seconds; 0 is none
#   sbx_d          working directory
#   sbx_i          1 if the command reads stdin
#   "$@"           the command
#   command_env    a function that exports the command's environment
# Names that the command could inherit begin with sbx_, so that they do not change
# variables of its own.
#
# Standard input carries frames: "d LENGTH" and that many bytes of the command's
# stdin, "e" for its end, "k" to kill the command, "s NAME" to signal it, "q" when
# its end has been heard of. Input that ends without "q" means that the driver is
# gone. Frames, because sbx does not reliably pass on the end of stdin.

# deadline runs beside the command. It exits 0 if it ended the command.
deadline() {
	trap 'kill $s 2>/dev/null; exit 1' TERM
	sleep "$sbx_t" &
	s=$!
	wait $s
	trap '' TERM
	kill -0 "$1" 2>/dev/null || exit 1
	kill -TERM $(victims "$1") 2>/dev/null
	waited=0
	while [ $waited -lt $((sbx_g * 10)) ] && [ -n "$(victims "$1")" ]; do
		sleep 0.1 2>/dev/null || sleep 1
		waited=$((waited + 1))
	done
	kill_all "$1"
	exit 0
}

# frames turns standard input into the command's stdin.
frames() {
	trap '' PIPE
	while read -r verb value; do
		case $verb in
		d) dd bs="$value" count=1 iflag=fullblock 2>/dev/null || exec >/dev/null ;;
		e) exec >/dev/null ;;
		k) kill_command ;;
		s)
			scan
			[ -z "$leader" ] || kill -s "$value" -- "-$leader" 2>/dev/null
			;;
		q) return ;;
		esac
	done
	kill_command
}

# start becomes the command. Its output is descriptors 3 and 4; descriptor 1 tells
# report which process it is.
start() {
	cd -- "$sbx_d" 2>/dev/null || { printf '\036%s nodir\036' "$sbx_n" >&4; exit 125; }
	unset OLDPWD # which dash exports
	command_env
	case $1 in
	*/*)
		[ -e "$1" ] || { echo "$1: no such file or directory" >&4; exit 127; }
		[ -x "$1" ] && [ ! -d "$1" ] || { echo "$1: cannot be executed" >&4; exit 126; }
		;;
	*) command -v -- "$1" >/dev/null || { echo "$1: command not found" >&4; exit 127; } ;;
	esac
	read -r sbx_pid sbx_stat </proc/self/stat
	echo "$sbx_pid"
	[ "$sbx_i" = 1 ] || exec </dev/null
	exec "$sbx_setsid" -- "$@" >&3 2>&4 3>&- 4>&-
}

# report waits for the command's end and says how it was. What the shell itself has
# to say before "end", such as "Killed", is how a signal differs from an exit code.
report() {
	timer= fired=0 signaled=0
	while read -r word code; do
		case $word in
		end) break ;;
		*[!0-9]*) signaled=1 ;;
		*)
			[ "$sbx_t" = 0 ] && continue
			deadline "$word" </dev/null >/dev/null 3>&- 4>&- &
			timer=$!
			;;
		esac
	done
	if [ -n "$timer" ]; then
		kill -TERM $timer
		wait $timer && fired=1
	fi
	printf '\036%s end %s %s %s\036' "$sbx_n" "$code" "$fired" "$signaled" >&3
	printf '\036%s end %s %s %s\036' "$sbx_n" "$code" "$fired" "$signaled" >&4
}

sbx_setsid=$(command -v setsid) || printf '\036%s nosetsid\036' "$sbx_n" >&2
exec 3>&1 4>&2 2>/dev/null
frames 3>&- 4>&- | { (start "$@" 2>/dev/null); echo "end $?"; } 2>&1 | report
