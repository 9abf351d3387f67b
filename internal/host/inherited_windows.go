package host

// keepInherited has nothing to do here: a process is given only what is named.
func keepInherited() {}
