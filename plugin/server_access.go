package plugin

import (
	"context"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func (s *server) AccessLog(ctx context.Context, request *driverpb.AccessLogRequest) (*driverpb.AccessLogResponse, error) {
	logger, ok := s.driver.(AccessLogger)
	if !ok {
		return nil, s.unsupported("tell what the sandbox tried to reach")
	}
	accesses, err := logger.AccessLog(ctx, refFromWire(request.GetRef()))
	if err != nil {
		return nil, err
	}
	answer := &driverpb.AccessLogResponse{}
	for _, access := range accesses {
		answer.Accesses = append(answer.Accesses, &driverpb.Access{
			Verdict: accessVerdicts.toWire(access.Verdict), Protocol: cut(access.Protocol), Host: cut(access.Host), Address: cut(access.Address),
			Port: uint32(access.Port), Reason: cut(access.Reason), Count: access.Count,
			FirstTime: timeToWire(access.First), LastTime: timeToWire(access.Last),
		})
	}
	return answer, nil
}
