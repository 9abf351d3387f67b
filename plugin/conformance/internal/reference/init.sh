# Builds the sandbox's root in the directory $1, with the
# machine's directory $2 as /tmp if there is one, and becomes the sandbox's first process.
set -e
root=$1
mount -t tmpfs -o mode=755 root "$root"
cd "$root"
mkdir usr etc dev proc root run srv tmp var var/tmp
chmod 1777 tmp var/tmp
mount --rbind -o ro /usr usr
mount -o remount,bind,ro usr
for dir in bin sbin lib lib32 lib64 libx32; do
	[ ! -L "/$dir" ] || cp -P "/$dir" "$dir"
done
cp /etc/passwd /etc/group etc
[ -z "$2" ] || mount --bind "$2" tmp
mount -t proc proc proc
for device in null zero full random urandom; do
	: >"dev/$device"
	mount --bind "/dev/$device" "dev/$device"
done
ln -s /proc/self/fd dev/fd
ip link set lo up 2>/dev/null || :
exec chroot . sleep infinity
