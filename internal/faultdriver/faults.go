package faultdriver

// Fault is a way to misbehave.
type Fault string

// The faults of a start.
const (
	// StartNoise prints a line before the handshake.
	StartNoise Fault = "start-noise"
	// StartExit ends with status 3 and a line on stderr.
	StartExit Fault = "start-exit"
	// StartSlow takes a second.
	StartSlow Fault = "start-slow"
	// StartHangs never says anything.
	StartHangs Fault = "start-hangs"
	// StartProtocol speaks protocol 99.
	StartProtocol Fault = "start-protocol"
	// StartGrandchild leaves a process that holds stderr for a minute.
	StartGrandchild Fault = "start-grandchild"
)

// The faults of a backend.
const (
	// AuthMissing fails every call but GetInfo for lack of credentials.
	AuthMissing Fault = "auth-missing"
	// BackendDown fails them because the backend does not answer.
	BackendDown Fault = "backend-down"
	// ListBadRow lists what there is and warns of a row that cannot be read.
	ListBadRow Fault = "list-bad-row"
	// ListFails fails List alone.
	ListFails Fault = "list-fails"
	// ListHangs never answers List.
	ListHangs Fault = "list-hangs"
	// ListLong lists 20,000 sandboxes of another owner besides.
	ListLong Fault = "list-long"
)

// The faults of a create.
const (
	// CreateFails fails after something was made, and removes it.
	CreateFails Fault = "create-fails"
	// CreateLeaves fails after something was made, cannot remove it, and says so.
	CreateLeaves Fault = "create-leaves"
	// CreateLies fails after something was made, leaves it, and does not say so.
	CreateLies Fault = "create-lies"
	// CreateHangs makes something, tells its handle and then neither answers nor
	// hears a cancel.
	CreateHangs Fault = "create-hangs"
	// CreateDies makes something, tells its handle and kills its own process.
	CreateDies Fault = "create-dies"
	// CreateEndsEarly closes the stream without a sandbox.
	CreateEndsEarly Fault = "create-ends-early"
	// CreateOther returns a sandbox with another id than was asked for.
	CreateOther Fault = "create-other"
)

// The faults of a sandbox.
const (
	// ExecPanics panics in Exec.
	ExecPanics Fault = "exec-panics"
	// ExecDies kills its own process after some output.
	ExecDies Fault = "exec-dies"
	// ExecNoExit closes the stream after some output, without an exit status.
	ExecNoExit Fault = "exec-no-exit"
	// ExecTwoExits sends two exit statuses, first 0 and then 7.
	ExecTwoExits Fault = "exec-two-exits"
	// ExecNoReason sends an exit status without a reason.
	ExecNoReason Fault = "exec-no-reason"
	// ExecLargeFrame sends 5 MB of output in one message.
	ExecLargeFrame Fault = "exec-large-frame"
	// ExecHangs never answers and hears no cancel.
	ExecHangs Fault = "exec-hangs"
	// ExecUnsure says that the command may or may not have run.
	ExecUnsure Fault = "exec-unsure"
	// ExecGone says that the sandbox is gone.
	ExecGone Fault = "exec-gone"
	// ExecLongError fails with an error of 20 MiB.
	ExecLongError Fault = "exec-long-error"
	// DestroyFails fails Destroy.
	DestroyFails Fault = "destroy-fails"
	// DestroyHangs never answers Destroy.
	DestroyHangs Fault = "destroy-hangs"
	// HostileText puts terminal escapes and newlines into all texts, among them
	// the state's reason, details, labels and warnings, and into names of files.
	HostileText Fault = "hostile-text"
	// ImpossibleNames lists directory entries that cannot be: paths, "..", NUL.
	ImpossibleNames Fault = "impossible-names"
	// ClockSkew has a backend whose clock is a day ahead.
	ClockSkew Fault = "clock-skew"

	// ReadFails fails in the middle of a file.
	ReadFails Fault = "read-fails"
	// ReadCut ends a file's stream without the trailer.
	ReadCut Fault = "read-cut"
	// ReadCorrupt changes a byte, so that the trailer's checksum is wrong.
	ReadCorrupt Fault = "read-corrupt"
	// WriteFails takes some of an upload and fails for lack of space.
	WriteFails Fault = "write-fails"
)

// The faults of a sandbox whose archives are hostile: what a sandbox sends of a tree
// holds this besides.
const (
	// ArchiveDotDot has an entry "../escaped".
	ArchiveDotDot Fault = "archive-dot-dot"
	// ArchiveAbsolute has an entry with an absolute name.
	ArchiveAbsolute Fault = "archive-absolute"
	// ArchiveThroughLink has a link to outside, then a file through it.
	ArchiveThroughLink Fault = "archive-through-link"
	// ArchiveHardLink has a hard link to /etc/passwd.
	ArchiveHardLink Fault = "archive-hard-link"
	// ArchiveDevice has a device.
	ArchiveDevice Fault = "archive-device"
	// ArchiveDuplicates has the same name three times: as a file, as a link to
	// outside and as a file again.
	ArchiveDuplicates Fault = "archive-duplicates"
	// ArchiveMillion has a million entries.
	ArchiveMillion Fault = "archive-million"
	// ArchiveSetuid has a file with the setuid bit.
	ArchiveSetuid Fault = "archive-setuid"
	// ArchiveCut stops in the middle of a file, and of the stream.
	ArchiveCut Fault = "archive-cut"
	// ArchiveEscapes has a name with terminal escapes.
	ArchiveEscapes Fault = "archive-escapes"
)

// Archives returns the faults of archives.
func Archives() []Fault {
	return []Fault{
		ArchiveDotDot, ArchiveAbsolute, ArchiveThroughLink, ArchiveHardLink, ArchiveDevice,
		ArchiveDuplicates, ArchiveMillion, ArchiveSetuid, ArchiveCut, ArchiveEscapes,
	}
}
