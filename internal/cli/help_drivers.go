package cli

const helpDrivers = `A driver connects sandboxctl to one backend. It is a program of its own called
sandboxctl-driver-NAME; these come with sandboxctl:

  local        gVisor on this Linux machine; needs nothing else
  sbx          Docker Sandboxes, microVMs on this machine
  opensandbox  a self-hosted OpenSandbox server
  modal        Modal, in the cloud

Which one create and run use: --driver, then SANDBOXCTL_DRIVER, then "driver" in the
configuration file, then local on Linux and sbx elsewhere. After that a sandbox's name
is enough.

  sandboxctl driver ls           what is there, and from where
  sandboxctl driver info NAME    what it can enforce, its options and its variables
  sandboxctl doctor NAME         what is missing to use it
  sandboxctl driver test NAME    whether it keeps its promises

Where drivers are looked for, the first that has the name counting: drivers.NAME.path in
the configuration file, $XDG_DATA_HOME/sandboxctl/drivers/NAME/VERSION/OS_ARCH/, the folder
of sandboxctl itself and ../libexec/sandboxctl from there; never the working directory or
$PATH. A file or folder that other users can write to is refused.

A driver sees no variable of yours but those that it declares; driver info lists them.
"sandboxctl help environment" shows the configuration file.`
