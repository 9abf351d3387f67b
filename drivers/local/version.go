package local

// version is set when a release is linked.
var version = "dev"
