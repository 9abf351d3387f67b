package main

// lastRow is how many rows the contract's list of checks has.
const lastRow = 99

// elsewhere says where the rows are checked that no driver can be asked about alone.
var elsewhere = map[int]string{
	3:  "internal/host and each driver's own tests: a driver starts and describes itself without credentials",
	4:  "internal/host: each failing start names the file, the cause and the fix",
	6:  "the SDK's server: the first error stays, a failed rollback is told next to it; fault create-leaves",
	9:  "the command line: create --if-not-exists with another specification is a conflict",
	11: "the command line, with fault destroy-fails",
	12: "each driver's own tests, since only its backend can make a sandbox unhealthy",
	26: "the command line: output windows never cut a character",
	45: "each driver's own tests, since remaining life is the backend's",
	50: "the command line, with fault exec-hangs",
	51: "each driver's own tests, since the reconnect is the backend's",
	53: "the command line, with fault exec-unsure",
	87: "the command line: refusals from the driver's capabilities, before anything is created",
	88: "the command line: contradicting network options",
	89: "the command line: host and CIDR grammar",
	94: "not offered: sandboxes are not attached to",
	95: "not offered: sandboxes are not attached to",
	96: "the ledger: concurrent changes of one record",
	97: "not offered: sandboxes are not attached to",
}
