"""The backend against the contract of the common.ai provider, on the local driver."""

import io
import time

import pytest
from airflow.providers.common.ai.sandbox.base import (
    SandboxError,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
)
from conftest import names
from sandboxctl_backend import SandboxctlBackend

backend = SandboxctlBackend()


@pytest.fixture(scope="module")
def sandbox():
    handle = backend.create(spec=SandboxSpec())
    yield handle
    backend.destroy(handle)


def run(sandbox, command, timeout=30.0, cap=51200):
    return backend.run_command(sandbox, command, timeout=timeout, max_output_bytes=cap)


def test_create_names_and_destroys():
    handle = backend.create()
    assert handle.startswith("airflow-sandbox-") and handle in names()
    backend.destroy(handle)
    assert handle not in names()
    backend.destroy(handle)
    with pytest.raises(SandboxTerminalError):
        run(handle, "true")


def test_streams_and_codes(sandbox):
    result = run(sandbox, "printf 'A\\n\\nB'; echo err >&2; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "A\n\nB", "err\n")
    assert not result.timed_out and not result.stdout_truncated
    assert run(sandbox, "printf '\\377x'").stdout == "\ufffdx"
    assert run(sandbox, "kill -9 $$").exit_code == 137
    assert run(sandbox, "exit 124").timed_out is False


def test_keeps_the_end_of_each_stream(sandbox):
    result = run(sandbox, "seq 1 100000; echo small >&2", cap=1000)
    assert result.stdout.endswith("99999\n100000\n") and len(result.stdout) <= 1000
    assert result.stdout_truncated and not result.stderr_truncated and result.stderr == "small\n"


def test_timeout_kills_and_keeps_the_sandbox(sandbox):
    start = time.monotonic()
    result = run(sandbox, "echo before; sleep 60", timeout=0.5)
    assert result.timed_out and result.stdout == "before\n" and result.applied_timeout == 1.0
    assert not result.sandbox_terminated and time.monotonic() - start < 20
    for wrong in (0, -1, float("nan"), float("inf"), True):
        with pytest.raises(ValueError):
            run(sandbox, "true", timeout=wrong)


@pytest.mark.parametrize("path", ["plain", "new/nested/dir/file", "a name;$(id)'\"\n*", "-n", "/tmp/ünï"])
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 5])
def test_files_round_trip(sandbox, path, content):
    backend.write_file(sandbox, path, b"longer than what follows" * 100)
    backend.write_file(sandbox, path, content)
    assert backend.read_file(sandbox, path, max_bytes=5000) == content


def test_large_files(sandbox):
    content = bytes(1_000_003)
    backend.write_file(sandbox, "large", content)
    assert backend.read_file(sandbox, "large", max_bytes=2_000_000) == content
    with pytest.raises(SandboxFileTooLargeError) as error:
        backend.read_file(sandbox, "large", max_bytes=100)
    assert error.value.size_bytes == 1_000_003
    out = io.BytesIO()
    assert backend.export_file(sandbox, "large", out, max_bytes=2_000_000) == 1_000_003
    assert out.getvalue() == content


def test_paths_that_cannot_be_read(sandbox):
    run(sandbox, "mkdir -p d && mkfifo pipe")
    for path in ("missing", "d", "pipe", "nul\0byte"):
        with pytest.raises(SandboxError) as error:
            backend.read_file(sandbox, path, max_bytes=100)
        assert not isinstance(error.value, SandboxTerminalError)
    with pytest.raises(SandboxFileTooLargeError):
        backend.read_file(sandbox, "/dev/zero", max_bytes=100)
    with pytest.raises(SandboxError):
        backend.write_file(sandbox, "d", b"x")
    with pytest.raises(SandboxError) as error:
        run(sandbox, "x" * 200_000)
    assert "file first" in str(error.value)


def test_listing(sandbox):
    run(sandbox, "mkdir -p listed/sub && cd listed && touch .hidden 'new\nline' && ln -s sub link")
    expected = [(".hidden", False), ("link", False), ("new\nline", False), ("sub", True)]
    assert sorted(backend.list_directory(sandbox, "listed")) == expected
    assert backend.list_directory(sandbox, "listed/link") == []
    for path in ("nope", "listed/.hidden"):
        with pytest.raises(SandboxError) as error:
            backend.list_directory(sandbox, path)
        assert not isinstance(error.value, SandboxTerminalError)


def test_environment_is_the_spec_and_nothing_else(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    env = {"PLAIN": "a b'\"; rm -rf /", "LINES": "one\ntwo", "PATH": "/opt/x:/usr/bin:/bin", "EMPTY": ""}
    handle = backend.create(spec=SandboxSpec(env=env))
    try:
        seen = run(handle, "env -0").stdout.split("\0")
        assert {f"{key}={value}" for key, value in env.items()} <= set(seen)
        assert not any("AIRFLOW" in line for line in seen)
    finally:
        backend.destroy(handle)
    with pytest.raises(SandboxTerminalError, match="NUMBER"):
        backend.create(spec=SandboxSpec(env={"NUMBER": 1}))


PROBE = """python3 -c 'import socket
for host in ("192.0.2.1", "example.invalid"):
    try: socket.create_connection((host, 443), 2); print("open")
    except OSError: print("closed")'"""


def test_network_is_closed_and_what_cannot_be_is_refused(sandbox):
    assert run(sandbox, PROBE).stdout == "closed\nclosed\n"
    before = names()
    for spec in (
        SandboxSpec(block_network=False, allow_egress_to=["pkg.example.net"]),
        SandboxSpec(allow_egress_to="pkg.example.net"),
        SandboxSpec(allow_egress_to=["http://pkg.example.net"]),
        SandboxSpec(allow_egress_to_cidrs=["10.0.0.1/8"]),
        SandboxSpec(owner="dag/run"),
    ):
        with pytest.raises(SandboxTerminalError):
            backend.create(spec=spec)
    assert names() == before


def test_a_worker_without_sandboxctl_says_so():
    with pytest.raises(SandboxTerminalError, match="install"):
        SandboxctlBackend(sandboxctl="/nonexistent/sandboxctl").create()
