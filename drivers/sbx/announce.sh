read -r sbx_boot </proc/sys/kernel/random/boot_id
read -r sbx_stat </proc/1/stat
sbx_n=$1 sbx_me=$$
set -- ${sbx_stat##*) }
printf '\036%s start %s-%s\036' "$sbx_n" "$sbx_boot" "${20}"
printf '\036%s start %s\036' "$sbx_n" $$ >&2
read -r sbx_size && eval "$(dd bs="$sbx_size" count=1 iflag=fullblock 2>/dev/null)"
