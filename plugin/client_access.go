package plugin

import (
	"context"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// AccessLog asks what a sandbox's network let through and refused; see AccessLogger.
func (c *Client) AccessLog(ctx context.Context, ref Ref) ([]Access, error) {
	answer, err := c.rpc.AccessLog(ctx, &driverpb.AccessLogRequest{Ref: refToWire(ref)})
	if err != nil {
		return nil, fromStatus(ctx, "read the access log", err)
	}
	accesses := make([]Access, 0, len(answer.GetAccesses()))
	for _, access := range answer.GetAccesses() {
		accesses = append(accesses, Access{
			Verdict: accessVerdicts.fromWire(access.GetVerdict()), Protocol: access.GetProtocol(), Host: access.GetHost(),
			Address: access.GetAddress(), Port: uint16(min(access.GetPort(), 1<<16-1)), Reason: access.GetReason(), Count: access.GetCount(),
			First: timeFromWire(access.GetFirstTime()), Last: timeFromWire(access.GetLastTime()),
		})
	}
	return accesses, nil
}
