#!/bin/sh
# Checks the limits on a machine that has nothing but control groups of version 2: a
# virtual one with this machine's files, read-only. Needs root, busybox, qemu, which takes
# some minutes for it without KVM (QEMU may name one with other arguments), and a
# distribution's kernel, which is Debian's for machines like this one unless another is named:
#
#	drivers/local/testing/unified-vm.sh [VMLINUZ MODULES]
set -eu
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
if [ $# -eq 2 ]; then
	kernel=$1 modules=$2
else
	package=$(apt-cache depends "linux-image-$(dpkg --print-architecture)" | sed -n 's/.*Depends: //p' | head -n 1)
	mkdir -m 777 "$work/kernel"
	(cd "$work/kernel" && apt-get download -qq "$package" && dpkg-deb -x "$package"_*.deb .)
	kernel=$(echo "$work"/kernel/boot/vmlinuz-*) modules=$(echo "$work"/kernel/lib/modules/*)
fi

mkdir "$work/bin"
CGO_ENABLED=0 go build -o "$work/bin" ./cmd/sandboxctl ./drivers/local/cmd/...
CGO_ENABLED=0 go test -c -o "$work/bin/cgroups.test" ./drivers/local/cgroups

# The first root, which mounts the other: this machine's, with a layer in memory over it.
root=$work/first
mkdir -p "$root/bin" "$root/modules" "$root/proc" "$root/lower" "$root/upper" "$root/new"
busybox=$(command -v busybox)
cp "$busybox" "$root/bin/busybox"
for library in $(ldd "$busybox" 2>/dev/null | grep -o '/[^ ]*'); do
	mkdir -p "$root$(dirname "$library")"
	cp -L "$library" "$root$library"
done
for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci 9pnet 9pnet_virtio netfs fscache 9p overlay; do
	find "$modules" -name "$module.ko" -exec cp {} "$root/modules/" \;
done
cat >"$root/init" <<END
#!/bin/busybox sh
busybox() { /bin/busybox "\$@"; }
# In an order in which each finds what it needs; some kernels have some built in.
for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_ring virtio virtio_pci 9pnet 9pnet_virtio netfs fscache 9p overlay; do
	busybox insmod /modules/\$module.ko 2>/dev/null
done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro host /lower
busybox mount -t tmpfs upper /upper
for dir in proc sys dev mnt run; do busybox mkdir -p /upper/files/\$dir; done
busybox mkdir /upper/work
busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /new
exec /bin/busybox switch_root /new /bin/sh $work/second
END
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"

cat >"$work/second" <<'END'
work=$(dirname "$0")
export PATH=$work/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt TMPDIR=/mnt TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs mnt /mnt && chmod 1777 /mnt
mount -t tmpfs run /run
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
ip link set lo up
cd /mnt
echo "Linux $(uname -r) with $(cat /sys/fs/cgroup/cgroup.controllers)"
cgroups.test && echo "ok: cgroups.test" || echo "FAILED: cgroups.test"

SANDBOXCTL_STATE_DIR=/mnt/root sh "$work/check" /sys/fs/cgroup

ordinary="setpriv --reuid 54321 --regid 54321 --clear-groups env SANDBOXCTL_STATE_DIR=/mnt/user"
if $ordinary sandboxctl create --memory 256m; then echo "FAILED: an ordinary user without a group has limits"; fi

# What systemd makes of a user with "Delegate=".
user=/sys/fs/cgroup/user@54321.service
mkdir -p $user/app.slice/run-1.scope
for dir in /sys/fs/cgroup $user $user/app.slice; do echo "+cpu +memory +pids" >$dir/cgroup.subtree_control; done
for dir in $user $user/app.slice $user/app.slice/run-1.scope; do
	chown 54321:54321 $dir $dir/cgroup.procs $dir/cgroup.subtree_control $dir/cgroup.threads
done
sh -c "echo \$\$ >$user/app.slice/run-1.scope/cgroup.procs && exec $ordinary sh $work/check $user"
echo "the end"
busybox poweroff -f
END

cat >"$work/check" <<'END'
where=$1
want() { [ "$2" = "$3" ] && echo "ok: $1" || echo "FAILED: $1 is '$2', not '$3'"; }
sandboxctl doctor local
sandboxctl create --memory 256m --cpus 0.5 --pids 64 --disk 64m --name one || echo "FAILED: create"
group=$(ls -d "$where"/sandboxctl-*)
want memory.max "$(cat "$group/memory.max")" 268435456
want memory.oom.group "$(cat "$group/memory.oom.group")" 1
want cpu.max "$(cat "$group/cpu.max")" "50000 100000"
want "the number of processes inside" "$([ "$(wc -l <"$group/run/cgroup.procs")" -ge 3 ] && echo enough)" enough
want MemTotal "$(sandboxctl exec one -- sh -c 'grep -o "[0-9]* kB" /proc/meminfo | head -n 1')" "262144 kB"
result=$(sandboxctl exec --json one -- python3 -c 'print(len(bytearray(1 << 30)))')
want "the end of a command that takes too much" "$(echo "$result" | grep -o '"reason":"[a-z]*"')" '"reason":"oom"'
sandboxctl rm one
want "what is left" "$(ls -d "$where"/sandboxctl-* 2>/dev/null)" ""
END

timeout 1200 ${QEMU:-qemu-system-x86_64 -accel tcg,thread=multi -cpu max} -smp 2 -m 3072 -nographic -no-reboot -net none \
	-kernel "$kernel" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1" \
	-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=host,mount_tag=host \
	</dev/null | tee "$work/log"
if grep -q FAILED "$work/log" || ! grep -q "^the end.\{0,1\}$" "$work/log"; then
	echo "unified-vm.sh: something failed" >&2
	exit 1
fi
