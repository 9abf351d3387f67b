package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// mostDisk is the limit of the tests' sandboxes.
const mostDisk = 32 << 20

// hostDisk returns what a sandbox's files take on this machine, in bytes. They have no
// names.
func (f *fixture) hostDisk(ref plugin.Ref) int64 {
	f.t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", f.sandboxPID(ref)))
	if err != nil {
		f.t.Fatal(err)
	}
	var sum int64
	for _, fd := range open {
		target, _ := os.Readlink(fd)
		if info, err := os.Stat(fd); err == nil && strings.HasPrefix(target, f.stateDir) {
			sum += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
	}
	return sum
}

// fill writes files in all the ways and places that there are, until nothing more
// fits, and says how much it wrote.
const fill = `import os, sys
total = 0
def put(path, size):
    global total
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        while size > 0:
            n = os.write(fd, b'x' * min(size, 1 << 16))
            size -= n
            total += n
        return True
    except OSError as e:
        if e.errno != 28: raise
        return False
    finally:
        if not path.endswith('gone'): os.close(fd)
places = ['/tmp', '/var/tmp', '/workspace', '/root', '/etc', '/', '/home', '/opt', '/run']
for place in places:
    put(place + '/half', 1 << 20)
    put(place + '/gone', 1 << 20)
    os.unlink(place + '/gone')
fd = os.open('/tmp/sparse', os.O_WRONLY | os.O_CREAT, 0o644)
os.truncate(fd, 1 << 40)
total += os.pwrite(fd, b'x' * 4096, 1 << 39)
n = 0
while n < 1000 and put('/tmp/small%d' % n, 4096): n += 1
for place in places:
    put(place + '/rest', 1 << 30)
print(total)
for place in ['/usr', '/usr/local/bin', '/bin', '/etc/ssl/certs', '/etc/alternatives', '/sys', '/proc', '/.sandboxctl']:
    try:
        if os.path.exists(place) and put(place + '/more', 4096): print('wrote to ' + place)
    except OSError:
        pass
`

// TestLimitsOfAnImage has the limits in a sandbox whose root is an image with next to
// nothing in it.
func TestLimitsOfAnImage(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		reference := push(t, imageRegistry(t), distroless(t, v1.Config{}), "limits:1")
		f := startDriver(t, uid)
		ref := f.create(image(reference), func(spec *plugin.SandboxSpec) { spec.DiskBytes, spec.PIDs = mostDisk, mostProcesses })
		if done := f.exec(ref, say()); done.Code != 0 {
			t.Errorf("a command: %+v", done)
		}
		if limit := f.counted(ref, "pids.max"); limit != mostProcesses {
			t.Errorf("the limit of processes is %d", limit)
		}
		if info, err := f.Stat(f.ctx(), ref, "/tmp", false); err != nil || info.Mode != 0o1777 {
			t.Errorf("/tmp is %+v, %v", info, err)
		}
		const half = mostDisk * 5 / 8
		for i, path := range []string{"/tmp/first", "/second"} {
			err := f.WriteFile(f.ctx(), ref, path, 0o644, strings.NewReader(strings.Repeat("x", half)))
			if (err != nil) != (i == 1) {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

func TestDiskIsLimited(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create(func(spec *plugin.SandboxSpec) { spec.DiskBytes = mostDisk })
		for range 2 {
			done := f.exec(ref, &plugin.ExecRequest{Argv: []string{"python3", "-c", fill}})
			var total int64
			_, err := fmt.Sscan(done.stdout, &total)
			if err != nil || done.Code != 0 || strings.Count(done.stdout, "\n") != 1 || total > mostDisk || total < mostDisk*3/4 {
				t.Fatalf("got %+v, want up to %d bytes", done, mostDisk)
			}
			if used := f.hostDisk(ref); used > mostDisk+mostDisk/8 {
				t.Errorf("the files take %d bytes of this machine", used)
			}
			if done := f.exec(ref, shell("rm -f /tmp/* /var/tmp/* /workspace/* /root/* /*/rest /*/half /rest /half; head -c 8000000 /dev/zero >/workspace/again")); done.Code != 0 {
				t.Errorf("after the files are gone: %+v", done)
			}
			f.exec(ref, shell("rm /workspace/again"))
		}
		if done := f.exec(ref, shell("head -c 100000000 /dev/zero >/dev/shm/file; wc -c </dev/shm/file")); done.stdout != fmt.Sprintln(mostDisk) {
			t.Errorf("/dev/shm takes %+v", done)
		}
		err := f.WriteFile(f.ctx(), ref, "/workspace/large", 0o644, strings.NewReader(strings.Repeat("x", mostDisk+1)))
		if plugin.KindOf(err) != plugin.KindPath || !strings.Contains(err.Error(), "space") {
			t.Errorf("a file from outside: %v", err)
		}
		if done := f.exec(ref, shell("ls /workspace")); done.stdout != "" {
			t.Errorf("what is left of it: %+v", done)
		}
	})
}
