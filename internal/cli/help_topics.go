package cli

import (
	"github.com/spf13/cobra"
)

// helpTopics are pages without a command, as in `sandboxctl help exit-codes`.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: helpExitCodes},
		{Use: "json", Short: "The JSON that programs can rely on", Long: helpJSON},
		{Use: "drivers", Short: "What drivers are, and where they are looked for", Long: helpDrivers},
		{Use: "environment", Short: "Variables, the configuration, and where things are kept", Long: helpEnvironment},
	}
}

const helpExitCodes = `Exit codes of exec, run and shell:

  0-255  the command's own
  124    it ran longer than --timeout (a command may also return 124 by itself;
         --json tells them apart: reason is timed_out)
  125    sandboxctl, the driver or the command line failed, not the command
  126    the command was found and could not be executed
  127    the command was not found
  128+n  the command was killed by signal n
  130    sandboxctl was interrupted (SIGINT); 143 for SIGTERM, 129 for SIGHUP

Exit codes of all other commands:

  0  done
  1  failed
  2  the command line makes no sense
  3  there is no such sandbox
  4  credentials or set-up are missing
  5  refused: the driver cannot enforce or does not support what was asked
  6  conflict: the name is taken, or something else stands in the way
  7  partly done: some of several sandboxes or drivers failed

130, 143 and 129 mean an interruption here too. 99 is never used by sandboxctl itself,
but a guest command may return it through exec.`

const helpJSON = `With --json, -o json or SANDBOXCTL_OUTPUT=json every command writes exactly one JSON
object on one line, as the last thing on stdout, whether it succeeds or fails. Warnings
and progress go to stderr. Fields are only ever added within a schema version.

  {"schema":"sandboxctl/v1","kind":"rm","ok":true,...}
  {"schema":"sandboxctl/v1","kind":"rm","ok":false,
   "error":{"class":"not_found","message":"...","hint":"...","driver":"local","retryable":false}}

"ok" says that sandboxctl did its job: a command that exits 3 is ok:true, exit_code:3.
Times are RFC 3339 in UTC. Arrays are never null.

error.class is one of: usage, not_found, conflict, refused, setup, auth, unavailable,
rate_limited, path, too_large, invalid, indeterminate (may or may not have happened;
never repeated automatically), lost, timeout, partial, interrupted, driver_error, failed.

exec and run: sandbox, id, driver, exit_code (absent when there is none), reason (exited,
signaled, timed_out, oom, canceled, lost, sandbox_gone, driver_error), signal,
stdout, stdout_encoding (utf-8, or base64 when the bytes are not), stdout_bytes (all
that was written), stdout_truncated, the same for stderr, applied_timeout_s,
duration_ms, sandbox_terminated and, for run, cleanup_error. The end of each stream is
kept, 16 KiB unless --max-output says otherwise.

With --result-file F the object goes to a file as well, and stdout stays the command's.

--field NAME writes one value of the object as it is, without quotes, for shells that
have no jq: sandboxctl exec --field exit_code ..., sandboxctl ls --field sandboxes.0.name.
A value that is absent is an empty line, and failures go to stderr.

There is a JSON Schema for each kind of result: sandboxctl help json KIND shows it, and
sandboxctl help json --json has them all. In the sources they are in docs/schema.`

const helpEnvironment = `Settings, in rising order: the configuration file, the environment, flags.

  SANDBOXCTL_DRIVER      the driver that create and run use
  SANDBOXCTL_OUTPUT      text or json
  SANDBOXCTL_COLOR       auto, always or never; NO_COLOR and TERM=dumb are honoured
  SANDBOXCTL_TTL         the lease of a new sandbox
  SANDBOXCTL_PROFILE     a profile of the configuration file
  SANDBOXCTL_DEBUG       1 for the log of sandboxctl and its driver
  SANDBOXCTL_CONFIG      the configuration file
                         (default $XDG_CONFIG_HOME/sandboxctl/config.yaml)
  SANDBOXCTL_STATE_DIR   what is remembered about your sandboxes
                         (default $XDG_STATE_HOME/sandboxctl)
  SANDBOXCTL_REATTACH_DRIVERS  drivers that run already, as their -debug flag prints it

The configuration file, all of it optional:

  driver: local
  ttl: 30m
  profiles:
    ci: {output: json, ttl: 10m}
  drivers:
    modal:
      path: /opt/drivers/sandboxctl-driver-modal
      env: {MODAL_TOKEN_ID: CI_MODAL_ID}   # take this variable from another one
      app: my-app                          # the rest is the driver's own
  dev_overrides: {modal: /home/me/bin}

Drivers are programs called sandboxctl-driver-NAME. They are looked for at their
configured path, under $XDG_DATA_HOME/sandboxctl/drivers/NAME/VERSION/OS_ARCH/, next to
sandboxctl and in ../libexec/sandboxctl; never in the working directory or $PATH.`
