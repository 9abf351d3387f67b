package plugin

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// enum pairs a Go constant with its number on the wire.
type enum[G ~string, P ~int32] []struct {
	native G
	wire   P
}

func (e enum[G, P]) toWire(native G) P {
	for _, pair := range e {
		if pair.native == native {
			return pair.wire
		}
	}
	return 0
}

func (e enum[G, P]) fromWire(wire P) G {
	for _, pair := range e {
		if pair.wire == wire {
			return pair.native
		}
	}
	return ""
}

var (
	networkModes = enum[NetworkMode, driverpb.NetworkPolicy_Mode]{
		{NetworkNone, driverpb.NetworkPolicy_MODE_NONE},
		{NetworkOpen, driverpb.NetworkPolicy_MODE_OPEN},
		{NetworkAllow, driverpb.NetworkPolicy_MODE_ALLOW},
	}
	states = enum[State, driverpb.State]{
		{StateCreating, driverpb.State_STATE_CREATING},
		{StateRunning, driverpb.State_STATE_RUNNING},
		{StatePaused, driverpb.State_STATE_PAUSED},
		{StateStopped, driverpb.State_STATE_STOPPED},
		{StateFailed, driverpb.State_STATE_FAILED},
	}
	exitReasons = enum[ExitReason, driverpb.ExecExited_Reason]{
		{ExitExited, driverpb.ExecExited_REASON_EXITED},
		{ExitSignaled, driverpb.ExecExited_REASON_SIGNALED},
		{ExitTimedOut, driverpb.ExecExited_REASON_TIMED_OUT},
		{ExitOOM, driverpb.ExecExited_REASON_OOM},
		{ExitCanceled, driverpb.ExecExited_REASON_CANCELED},
	}
	fileKinds = enum[FileKind, driverpb.FileKind]{
		{FileRegular, driverpb.FileKind_FILE_KIND_REGULAR},
		{FileDirectory, driverpb.FileKind_FILE_KIND_DIRECTORY},
		{FileSymlink, driverpb.FileKind_FILE_KIND_SYMLINK},
		{FileOther, driverpb.FileKind_FILE_KIND_OTHER},
	}
	checkStatuses = enum[CheckStatus, driverpb.Check_Status]{
		{CheckOK, driverpb.Check_STATUS_OK},
		{CheckWarning, driverpb.Check_STATUS_WARNING},
		{CheckFailed, driverpb.Check_STATUS_FAILED},
	}
	accessVerdicts = enum[AccessVerdict, driverpb.Access_Verdict]{
		{AccessAllowed, driverpb.Access_VERDICT_ALLOWED},
		{AccessRefused, driverpb.Access_VERDICT_REFUSED},
		{AccessFailed, driverpb.Access_VERDICT_FAILED},
	}
	hostMatches = enum[HostMatch, driverpb.HostMatch]{
		{MatchAddress, driverpb.HostMatch_HOST_MATCH_ADDRESS},
		{MatchSNI, driverpb.HostMatch_HOST_MATCH_SNI},
		{MatchProxy, driverpb.HostMatch_HOST_MATCH_PROXY},
	}
	symlinkWrites = enum[SymlinkWrite, driverpb.SymlinkWrite]{
		{SymlinkFollow, driverpb.SymlinkWrite_SYMLINK_WRITE_FOLLOW},
		{SymlinkReplace, driverpb.SymlinkWrite_SYMLINK_WRITE_REPLACE},
	}
)

func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromWire(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func durationToWire(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// optional drops a zero, which means "not asked for", from the wire.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func refToWire(ref Ref) *driverpb.SandboxRef {
	return &driverpb.SandboxRef{Id: ref.ID, Handle: ref.Handle}
}

func refFromWire(ref *driverpb.SandboxRef) Ref {
	return Ref{ID: ref.GetId(), Handle: ref.GetHandle()}
}

func policyToWire(policy NetworkPolicy) *driverpb.NetworkPolicy {
	return &driverpb.NetworkPolicy{Mode: networkModes.toWire(policy.Mode), Hosts: policy.Hosts, Cidrs: policy.CIDRs}
}

func policyFromWire(policy *driverpb.NetworkPolicy) NetworkPolicy {
	return NetworkPolicy{Mode: networkModes.fromWire(policy.GetMode()), Hosts: policy.GetHosts(), CIDRs: policy.GetCidrs()}
}

func specToWire(spec *SandboxSpec) *driverpb.SandboxSpec {
	return &driverpb.SandboxSpec{
		RequestId: spec.RequestID, Id: spec.ID, Name: spec.Name, Owner: spec.Owner,
		Image: spec.Image, Env: envToWire(spec.Env), Labels: spec.Labels, Workdir: spec.Workdir,
		Cpus: optional(spec.CPUs), MemoryBytes: optional(spec.MemoryBytes), DiskBytes: optional(spec.DiskBytes),
		Pids: optional(spec.PIDs), Gpu: spec.GPU,
		Network:    policyToWire(spec.Network),
		CreateTime: timeToWire(spec.CreatedAt), ExpireTime: timeToWire(spec.ExpiresAt),
		IdleTimeout: durationToWire(spec.IdleTimeout), Options: spec.Options,
	}
}

func specFromWire(spec *driverpb.SandboxSpec) *SandboxSpec {
	return &SandboxSpec{
		RequestID: spec.GetRequestId(), ID: spec.GetId(), Name: spec.GetName(), Owner: spec.GetOwner(),
		Image: spec.GetImage(), Env: envFromWire(spec.GetEnv()), Labels: spec.GetLabels(), Workdir: spec.GetWorkdir(),
		CPUs: spec.GetCpus(), MemoryBytes: spec.GetMemoryBytes(), DiskBytes: spec.GetDiskBytes(),
		PIDs: spec.GetPids(), GPU: spec.GetGpu(),
		Network:   policyFromWire(spec.GetNetwork()),
		CreatedAt: timeFromWire(spec.GetCreateTime()), ExpiresAt: timeFromWire(spec.GetExpireTime()),
		IdleTimeout: spec.GetIdleTimeout().AsDuration(), Options: spec.GetOptions(),
	}
}

func sandboxToWire(sandbox *Sandbox) *driverpb.Sandbox {
	return &driverpb.Sandbox{
		Id: sandbox.ID, Handle: sandbox.Handle, Name: cut(sandbox.Name), Owner: cut(sandbox.Owner),
		State: states.toWire(sandbox.State), StateReason: cut(sandbox.StateReason), Image: cut(sandbox.Image), Labels: sandbox.Labels,
		CreateTime: timeToWire(sandbox.CreatedAt), ExpireTime: timeToWire(sandbox.ExpiresAt),
		Network: policyToWire(sandbox.Network), Workdir: cut(sandbox.Workdir), DetailsJson: sandbox.Details,
	}
}

func sandboxFromWire(sandbox *driverpb.Sandbox) *Sandbox {
	return &Sandbox{
		ID: sandbox.GetId(), Handle: sandbox.GetHandle(), Name: sandbox.GetName(), Owner: sandbox.GetOwner(),
		State: states.fromWire(sandbox.GetState()), StateReason: sandbox.GetStateReason(), Image: sandbox.GetImage(), Labels: sandbox.GetLabels(),
		CreatedAt: timeFromWire(sandbox.GetCreateTime()), ExpiresAt: timeFromWire(sandbox.GetExpireTime()),
		Network: policyFromWire(sandbox.GetNetwork()), Workdir: sandbox.GetWorkdir(), Details: sandbox.GetDetailsJson(),
	}
}

func execToWire(ref Ref, request *ExecRequest) *driverpb.ExecStart {
	start := &driverpb.ExecStart{
		Ref: refToWire(ref), Argv: argvToWire(request.Argv), Env: envToWire(request.Env), Workdir: request.Workdir, User: request.User,
		Stdin: request.Stdin, Tty: request.TTY, Timeout: durationToWire(request.Timeout),
	}
	if request.TTY {
		start.Size = sizeToWire(request.Size)
	}
	return start
}

func execFromWire(start *driverpb.ExecStart) *ExecRequest {
	return &ExecRequest{
		Argv: argvFromWire(start.GetArgv()), Env: envFromWire(start.GetEnv()), Workdir: start.GetWorkdir(), User: start.GetUser(),
		Stdin: start.GetStdin(), TTY: start.GetTty(), Size: sizeFromWire(start.GetSize()), Timeout: start.GetTimeout().AsDuration(),
	}
}

func argvToWire(argv []string) [][]byte {
	wire := make([][]byte, 0, len(argv))
	for _, argument := range argv {
		wire = append(wire, []byte(argument))
	}
	return wire
}

func argvFromWire(wire [][]byte) []string {
	argv := make([]string, 0, len(wire))
	for _, argument := range wire {
		argv = append(argv, string(argument))
	}
	return argv
}

func envToWire(env map[string]string) map[string][]byte {
	wire := make(map[string][]byte, len(env))
	for name, value := range env {
		wire[name] = []byte(value)
	}
	return wire
}

func envFromWire(wire map[string][]byte) map[string]string {
	env := make(map[string]string, len(wire))
	for name, value := range wire {
		env[name] = string(value)
	}
	return env
}

func sizeToWire(size TerminalSize) *driverpb.TerminalSize {
	return &driverpb.TerminalSize{Rows: size.Rows, Cols: size.Cols}
}

func sizeFromWire(size *driverpb.TerminalSize) TerminalSize {
	return TerminalSize{Rows: size.GetRows(), Cols: size.GetCols()}
}

func exitToWire(status ExitStatus) *driverpb.ExecExited {
	return &driverpb.ExecExited{
		ExitCode: int32(status.Code), Reason: exitReasons.toWire(status.Reason), Signal: status.Signal,
		SandboxTerminated: status.SandboxTerminated, AppliedTimeout: durationToWire(status.AppliedTimeout),
	}
}

func exitFromWire(exited *driverpb.ExecExited) ExitStatus {
	return ExitStatus{
		Code: int(exited.GetExitCode()), Reason: exitReasons.fromWire(exited.GetReason()), Signal: exited.GetSignal(),
		SandboxTerminated: exited.GetSandboxTerminated(), AppliedTimeout: exited.GetAppliedTimeout().AsDuration(),
	}
}

func fileToWire(info FileInfo) *driverpb.FileInfo {
	return &driverpb.FileInfo{
		Name: []byte(info.Name), Kind: fileKinds.toWire(info.Kind), Size: uint64(max(info.Size, 0)), Mode: info.Mode,
		ModifyTime: timeToWire(info.ModTime), LinkTarget: []byte(info.LinkTarget),
	}
}

func fileFromWire(info *driverpb.FileInfo) FileInfo {
	return FileInfo{
		Name: string(info.GetName()), Kind: fileKinds.fromWire(info.GetKind()), Size: int64(info.GetSize()), Mode: info.GetMode(),
		ModTime: timeFromWire(info.GetModifyTime()), LinkTarget: string(info.GetLinkTarget()),
	}
}

func progressToWire(progress Progress) *driverpb.Progress {
	return &driverpb.Progress{Message: cut(progress.Message), Current: progress.Current, Total: progress.Total}
}

func progressFromWire(progress *driverpb.Progress) Progress {
	return Progress{Message: progress.GetMessage(), Current: progress.GetCurrent(), Total: progress.GetTotal()}
}

func imageToWire(image Image) *driverpb.Image {
	return &driverpb.Image{
		References: image.References, Digest: image.Digest, SizeBytes: image.SizeBytes,
		PullTime: timeToWire(image.PulledAt), LastUseTime: timeToWire(image.LastUsedAt), Sandboxes: image.Sandboxes,
	}
}

func imageFromWire(image *driverpb.Image) *Image {
	return &Image{
		References: image.GetReferences(), Digest: image.GetDigest(), SizeBytes: image.GetSizeBytes(),
		PulledAt: timeFromWire(image.GetPullTime()), LastUsedAt: timeFromWire(image.GetLastUseTime()), Sandboxes: image.GetSandboxes(),
	}
}
