package faultdriver

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandboxctl/sandboxctl/plugin"
)

var codeOfKind = map[plugin.Kind]codes.Code{
	plugin.KindInvalid:       codes.InvalidArgument,
	plugin.KindNotFound:      codes.NotFound,
	plugin.KindPath:          codes.FailedPrecondition,
	plugin.KindConflict:      codes.AlreadyExists,
	plugin.KindAuth:          codes.Unauthenticated,
	plugin.KindUnavailable:   codes.Unavailable,
	plugin.KindIndeterminate: codes.Aborted,
	plugin.KindCanceled:      codes.Canceled,
	plugin.KindInternal:      codes.Internal,
}

// fail is an error as the protocol has it. Pairs are metadata: "hint", "do this".
func fail(kind plugin.Kind, message string, pairs ...string) error {
	metadata := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		metadata[pairs[i]] = pairs[i+1]
	}
	answer, err := status.New(codeOfKind[kind], message).WithDetails(&errdetails.ErrorInfo{
		Reason: strings.ToUpper(string(kind)), Domain: "sandboxctl.driver.v1", Metadata: metadata,
	})
	if err != nil {
		return err
	}
	return answer.Err()
}

func notFound(id string) error {
	return fail(plugin.KindNotFound, "sandbox "+id+" does not exist")
}
