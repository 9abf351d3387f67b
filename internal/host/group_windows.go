package host

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is a job object that holds a driver and all that it starts. It ends with its
// last handle, so also when the host is killed.
type group struct {
	job     windows.Handle
	process *os.Process
}

// newGroup falls back to the single process when the system refuses a job.
func newGroup(process *os.Process) group {
	alone := group{process: process}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return alone
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		var assigned error
		reached := process.WithHandle(func(handle uintptr) {
			assigned = windows.AssignProcessToJobObject(job, windows.Handle(handle))
		})
		err = errors.Join(reached, assigned)
	}
	if err != nil {
		_ = windows.CloseHandle(job)
		return alone
	}
	return group{job: job, process: process}
}

func (g group) kill() {
	if g.job != 0 {
		_ = windows.TerminateJobObject(g.job, 1)
		return
	}
	_ = g.process.Kill()
}

func (g group) release() {
	if g.job != 0 {
		_ = windows.CloseHandle(g.job)
	}
}

// terminate cannot ask on Windows; the driver then sees its connection close.
func terminate(*os.Process) bool { return false }

// attributes keeps a Ctrl-C in the console from reaching the driver.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}
