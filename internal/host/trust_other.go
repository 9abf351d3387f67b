//go:build !unix

package host

// writableByOthers finds nothing on Windows: who may write to a file is in access
// control lists there, and the directories that drivers are in are the user's or an
// administrator's by default.
func writableByOthers(string) string { return "" }
