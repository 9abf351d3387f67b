//go:build linux

package modaldouble

import (
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sandbox is one sandbox, from its creation on and after its end.
type sandbox struct {
	id, taskID, appID, name string
	token                   string
	v2                      bool
	created                 time.Time
	definition              *pb.Sandbox
	env                     []string
	imageWorkdir            string
	guest                   *guest

	// The entrypoint's process is in execs under its own ID.
	mu         sync.Mutex
	tags       []*pb.SandboxTag
	execs      map[string]*process
	active     int
	lifetime   *time.Timer
	idle       *time.Timer
	result     *pb.GenericResult
	finishedAt time.Time
	finished   chan struct{}
}

func newSandbox(appID string, v2 bool, definition *pb.Sandbox, tags []*pb.SandboxTag, env []string) *sandbox {
	sb := &sandbox{
		appID:      appID,
		name:       definition.GetName(),
		v2:         v2,
		created:    time.Now(),
		definition: definition,
		env:        env,
		tags:       tags,
		execs:      make(map[string]*process),
		finished:   make(chan struct{}),
	}
	if v2 {
		// The Python client tells V2 tasks by their last letter.
		sb.id, sb.taskID = "sb-01"+random(crockford, 24), "ta-01"+random(crockford, 23)+"V"
	} else {
		sb.id, sb.taskID = "sb-"+random(base62, 22), "ta-"+random(base62, 22)
	}
	sb.token = unsignedToken(sb.taskID)
	return sb
}

// startClocks begins the lifetime and the idle time.
func (sb *sandbox) startClocks() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.result != nil {
		return
	}
	sb.lifetime = time.AfterFunc(time.Duration(sb.definition.GetTimeoutSecs())*time.Second, func() {
		sb.finish(pb.GenericResult_GENERIC_STATUS_TIMEOUT, 0)
	})
	sb.restartIdleLocked()
}

func (sb *sandbox) restartIdleLocked() {
	limit := time.Duration(sb.definition.GetIdleTimeoutSecs()) * time.Second
	if limit <= 0 || sb.active > 0 || sb.result != nil {
		return
	}
	sb.idle = time.AfterFunc(limit, func() {
		sb.mu.Lock()
		busy := sb.active > 0
		sb.mu.Unlock()
		if !busy {
			sb.finish(pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT, 0)
		}
	})
}

// exec starts a process once per exec ID.
func (sb *sandbox) exec(execID string, c command) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.result != nil {
		return status.Errorf(codes.NotFound, "task %s is not running", sb.taskID)
	}
	if _, started := sb.execs[execID]; started {
		return nil
	}
	p, err := startProcess(sb.guest, c)
	if err != nil {
		return status.Errorf(codes.Internal, "start the process: %v", err)
	}
	sb.execs[execID] = p
	sb.active++
	if sb.idle != nil {
		sb.idle.Stop()
	}
	go func() {
		<-p.done
		sb.mu.Lock()
		defer sb.mu.Unlock()
		sb.active--
		sb.restartIdleLocked()
	}()
	return nil
}

func (sb *sandbox) process(execID string) (*process, error) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if p, ok := sb.execs[execID]; ok {
		return p, nil
	}
	return nil, status.Errorf(codes.NotFound, "exec %s not found", execID)
}

// finish ends the sandbox once; later calls change nothing.
func (sb *sandbox) finish(cause pb.GenericResult_GenericStatus, exitCode int) {
	sb.mu.Lock()
	if sb.result != nil {
		sb.mu.Unlock()
		return
	}
	sb.result = pb.GenericResult_builder{Status: cause, Exitcode: int32(exitCode)}.Build()
	sb.finishedAt = time.Now()
	for _, clock := range []*time.Timer{sb.lifetime, sb.idle} {
		if clock != nil {
			clock.Stop()
		}
	}
	processes := sb.processesLocked()
	sb.mu.Unlock()
	for _, p := range processes {
		p.kill()
	}
	sb.guest.close()
	close(sb.finished)
}

func (sb *sandbox) processesLocked() []*process {
	return slices.Collect(maps.Values(sb.execs))
}

// release lets go of output that nobody will read.
func (sb *sandbox) release() {
	sb.mu.Lock()
	processes := sb.processesLocked()
	sb.mu.Unlock()
	for _, p := range processes {
		p.stdout.close()
		p.stderr.close()
		<-p.done
		p.drained.Wait()
	}
}

// report is the result as a client is told it: late by lag after a
// termination.
func (sb *sandbox) report(lag time.Duration) *pb.GenericResult {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.result.GetStatus() == pb.GenericResult_GENERIC_STATUS_TERMINATED && time.Since(sb.finishedAt) < lag {
		return nil
	}
	return sb.result
}

func (sb *sandbox) running() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.result == nil
}

// within says whether the sandbox runs or has ended less than lag ago.
func (sb *sandbox) within(lag time.Duration) bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.result == nil || time.Since(sb.finishedAt) < lag
}

func (sb *sandbox) setTags(tags []*pb.SandboxTag) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.tags = tags
}

func (sb *sandbox) tagMap() map[string]string {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	tags := make(map[string]string, len(sb.tags))
	for _, tag := range sb.tags {
		tags[tag.GetTagName()] = tag.GetTagValue()
	}
	return tags
}

func (sb *sandbox) hasTags(wanted []*pb.SandboxTag) bool {
	have := sb.tagMap()
	for _, tag := range wanted {
		if value, ok := have[tag.GetTagName()]; !ok || value != tag.GetTagValue() {
			return false
		}
	}
	return true
}

func (sb *sandbox) createdAt() float64 { return float64(sb.created.UnixNano()) / 1e9 }

// info is the sandbox's entry in a list.
func (sb *sandbox) info(bare bool) *pb.SandboxInfo {
	info := pb.SandboxInfo_builder{Id: sb.id, CreatedAt: sb.createdAt(), AppId: sb.appID}.Build()
	if bare {
		return info
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	info.SetName(sb.name)
	info.SetTags(sb.tags)
	info.SetImageId(sb.definition.GetImageId())
	info.SetTimeoutSecs(sb.definition.GetTimeoutSecs())
	if sb.definition.HasIdleTimeoutSecs() {
		info.SetIdleTimeoutSecs(sb.definition.GetIdleTimeoutSecs())
	}
	return info
}

func (sb *sandbox) observe() Observed {
	return Observed{
		ID:          sb.id,
		Name:        sb.name,
		AppID:       sb.appID,
		Running:     sb.running(),
		Tags:        maps.Clone(sb.tagMap()),
		Timeout:     time.Duration(sb.definition.GetTimeoutSecs()) * time.Second,
		IdleTimeout: time.Duration(sb.definition.GetIdleTimeoutSecs()) * time.Second,
		Definition:  sb.definition,
	}
}

// makeWorkdir creates the working directory if the image lacks it.
func (sb *sandbox) makeWorkdir() error {
	return sb.guest.run(func() error { return os.MkdirAll(sb.workdir(), 0o755) })
}
