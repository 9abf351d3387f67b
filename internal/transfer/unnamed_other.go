//go:build !linux

package transfer

import (
	"errors"
	"os"
	"time"
)

// createUnnamed says that only Linux has files without names.
func createUnnamed(*os.Root, string) (*os.File, error) { return nil, errors.ErrUnsupported }

func linkUnnamed(*os.Root, *os.File, string) error { return errors.ErrUnsupported }

func setUnnamedTime(*os.File, time.Time) error { return errors.ErrUnsupported }
