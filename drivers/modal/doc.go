// Package modal is sandboxctl's driver for Modal (modal.com), a hosted service
// that runs sandboxes in gVisor containers. It uses Modal's official Go SDK.
//
// What shaped it, beyond the SDK's documentation:
//
//   - The SDK puts no deadline on calls, so each one made here has one; see
//     deadlines.go.
//   - A create that was cancelled may still complete at Modal, so a sandbox has
//     a name that is known before the call and a nonce that proves whose it is.
//   - The SDK cannot kill a command. Commands carry a mark in their environment,
//     and a second command kills whatever carries it; see kill.go.
//   - What Modal says of a sandbox's state lags by half a minute. Whether one is
//     alive is asked by starting a trivial command in it.
package modal
