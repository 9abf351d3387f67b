package cli

// ignoreBrokenPipes has nothing to do: Windows has no signal for them.
func ignoreBrokenPipes() {}
