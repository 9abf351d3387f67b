package cli_test

import "golang.org/x/sys/unix"

const tcgets = unix.TCGETS
