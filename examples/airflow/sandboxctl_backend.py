"""A SandboxBackend for Airflow's common.ai provider that shells out to sandboxctl.

Every driver of sandboxctl becomes an Airflow backend at once:

    SandboxToolset(SandboxctlBackend())                              # gVisor on the worker
    SandboxToolset(SandboxctlBackend(driver="modal", image="python:3.12-slim"))

Put this file next to your Dags and sandboxctl on the worker's PATH.
"""

from __future__ import annotations

import base64
import json
import math
import os
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence

from airflow.providers.common.ai.sandbox.base import (
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
)

# How long sandboxctl may take beyond what the command may; it waits ten seconds itself.
GRACE = 60.0
CREATE_TIMEOUT = 600.0
FILE_TIMEOUT = 120.0

# What the model can work around; all else fails the task, and Airflow's retry takes over.
RECOVERABLE = {"path", "too_large", "invalid", "lost", "indeterminate", "rate_limited", "timeout"}

# A FIFO would block. The redirection, unlike an argument, takes any name for a file.
READ = """
[ -p "$1" ] && { echo "$1 is a pipe" >&2; exit 1; }
[ -d "$1" ] && { echo "$1 is a directory" >&2; exit 1; }
exec head -c "$2" <"$1"
"""
WRITE = """
case $1 in */*) mkdir -p -- "${1%/*}/" || exit 1 ;; esac
exec cat >"$1"
"""


class SandboxctlBackend(SandboxBackend):
    """Sandboxes of any sandboxctl driver.

    :param driver: Name of the driver; sandboxctl's own default if not given.
    :param image: Image of the sandboxes; the driver's default if not given.
    :param ttl: When a sandbox ends by itself if a worker dies before it can destroy it.
    :param create_args: Further arguments of ``sandboxctl create``, such as ``--memory``.
    :param sandboxctl: The program, a name or a path.
    :param state_dir: Where sandboxctl remembers sandboxes, for users without a home.
    """

    name = "sandboxctl"

    def __init__(
        self,
        driver: str | None = None,
        image: str | None = None,
        ttl: str = "1h",
        create_args: Sequence[str] = (),
        sandboxctl: str = "sandboxctl",
        state_dir: str | None = None,
    ) -> None:
        chosen = [f"--driver={driver}"] if driver else []
        chosen += [f"--image={image}"] if image else []
        self._create_args = ["--ttl", ttl, *chosen, *create_args]
        self._sandboxctl = sandboxctl
        self._state_dir = state_dir

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        # The name is ours and known before the call, so it can be found if we die.
        name = f"airflow-sandbox-{uuid.uuid4().hex[:12]}"
        args, lines, by_name = [*self._create_args, "--name", name], [], {}
        if spec is not None:
            args += self._network(spec)
            lines, by_name = self._environment(spec.env or {})
        args += ["--env-file", "/dev/stdin", *(f"--env={variable}" for variable in by_name)]
        self._json("create", *args, timeout=CREATE_TIMEOUT, stdin="\n".join(lines).encode(), env=by_name)
        return name

    @staticmethod
    def _network(spec: SandboxSpec) -> list[str]:
        hosts, ranges = spec.allow_egress_to or (), spec.allow_egress_to_cidrs or ()
        if spec.owner is not None:
            raise SandboxTerminalError("The sandboxctl backend cannot record SandboxSpec.owner.")
        if isinstance(hosts, str) or isinstance(ranges, str):
            raise SandboxTerminalError("allow_egress_to and allow_egress_to_cidrs are lists, not strings.")
        if not spec.block_network:
            if hosts or ranges:
                raise SandboxTerminalError("An open network and a list of what is allowed contradict each other.")
            return ["--network", "open"]
        if not hosts and not ranges:
            return ["--network", "none"]
        return [f"--allow-host={host}" for host in hosts] + [f"--allow-cidr={cidr}" for cidr in ranges]

    @staticmethod
    def _environment(env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Split variables into lines for stdin and those that no line can hold; none is an argument."""
        if wrong := [key for key, value in env.items() if not isinstance(value, str)]:
            raise SandboxTerminalError(f"Values of environment variables must be strings: {', '.join(wrong)}.")
        by_name = {key: value for key, value in env.items() if "\n" in value or "\r" in value}
        return [f"{key}={value}" for key, value in env.items() if key not in by_name], by_name

    def run_command(self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int) -> SandboxExecResult:
        for what, value in (("timeout", timeout), ("max_output_bytes", max_output_bytes)):
            if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
                raise ValueError(f"{what} must be a positive finite number, got {value!r}.")
        # At most 64 MiB is sandboxctl's own bound on what it keeps in memory.
        limit = min(int(max_output_bytes), 64 << 20)
        flags = ["--shell", "--timeout", f"{timeout:f}s", "--max-output", str(limit)]
        result = self._json("exec", *flags, sandbox, "--", command, timeout=timeout)
        return SandboxExecResult(
            result.get("exit_code", -1),
            self._text(result, "stdout"),
            self._text(result, "stderr"),
            timed_out=result["reason"] == "timed_out",
            stdout_truncated=result["stdout_truncated"],
            stderr_truncated=result["stderr_truncated"],
            sandbox_terminated=result["sandbox_terminated"],
            applied_timeout=result.get("applied_timeout_s"),
        )

    @staticmethod
    def _text(result: dict, stream: str) -> str:
        if result.get(f"{stream}_encoding") == "base64":
            return base64.b64decode(result[stream]).decode("utf-8", errors="replace")
        return result.get(stream, "")

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        content = self._stream(sandbox, READ, path, str(max_bytes + 1))
        if len(content) <= max_bytes:
            return content
        size = self._stream(sandbox, 'stat -Lc %s -- "$1" || echo 0', path)
        raise SandboxFileTooLargeError(path, max(len(content), int(size)), max_bytes)

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        self._stream(sandbox, WRITE, path, stdin=content)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        # The slash makes a file an error instead of a list of itself.
        listing = self._json("ls", f"{sandbox}:{path.rstrip('/')}/", timeout=FILE_TIMEOUT)
        return [(entry["name"], entry["type"] == "directory") for entry in listing["entries"]]

    def destroy(self, sandbox: str) -> None:
        self._json("rm", "--force", sandbox, timeout=FILE_TIMEOUT)

    def _stream(self, sandbox: str, script: str, *args: str, stdin: bytes | None = None) -> bytes:
        """Run a script with stdin and stdout as they are, byte for byte, and return stdout."""
        with tempfile.NamedTemporaryFile(prefix="sandboxctl-") as file:
            flags = ["--timeout", f"{FILE_TIMEOUT:g}s", "--result-file", file.name, *(["-i"] if stdin is not None else [])]
            done = self._run("exec", *flags, sandbox, "--", "sh", "-c", script, "sh", *args, timeout=FILE_TIMEOUT, stdin=stdin)
            with open(file.name, "rb") as written:
                result = self._result(written.read(), done)
        if result.get("exit_code") != 0:
            message = done.stderr.decode("utf-8", errors="replace").strip()
            raise SandboxError(message or f"{args[0]!r} could not be read or written: {result['reason']}.")
        return done.stdout

    def _json(self, *args: str, timeout: float, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> dict:
        done = self._run(args[0], "--json", *args[1:], timeout=timeout, stdin=stdin, env=env)
        return self._result(done.stdout, done)

    def _run(self, *args: str, timeout: float, stdin: bytes | None = None, env: Mapping[str, str] | None = None):
        environment = {**os.environ, **(env or {})}
        if self._state_dir:
            environment["SANDBOXCTL_STATE_DIR"] = self._state_dir
        try:
            # Without input, stdin must be empty: a task's own is the supervisor's socket.
            command, patience = [self._sandboxctl, *args], timeout + GRACE
            return subprocess.run(command, input=stdin or b"", capture_output=True, timeout=patience, env=environment)
        except (FileNotFoundError, PermissionError) as error:
            raise SandboxTerminalError(f"sandboxctl cannot be run on this worker; install it: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise SandboxTerminalError(f"sandboxctl did not answer: {error}") from error
        except (OSError, ValueError) as error:
            # Too long for an argument, or with a NUL byte in it: the model can do better.
            raise SandboxError(f"sandboxctl could not be called: {error}. Write long input to a file first.") from error

    @staticmethod
    def _result(line: bytes, done: subprocess.CompletedProcess) -> dict:
        try:
            result = json.loads(line)
        except ValueError:
            stderr = done.stderr.decode("utf-8", errors="replace").strip()
            raise SandboxTerminalError(f"sandboxctl failed with exit code {done.returncode}: {stderr}") from None
        if result["ok"]:
            return result
        error = result["error"]
        message = f"{error['message']}. {error.get('hint', '')}".rstrip()
        raise (SandboxError if error["class"] in RECOVERABLE else SandboxTerminalError)(message)
