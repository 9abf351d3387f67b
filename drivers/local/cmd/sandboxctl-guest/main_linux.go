// Command sandboxctl-guest is the local driver's helper inside its sandboxes. The
// driver can do without it, since it is its own helper then, but starts slower in
// the guest for being twenty times as large.
package main

import "github.com/sandboxctl/sandboxctl/drivers/local/guest"

func main() { guest.Main() }
