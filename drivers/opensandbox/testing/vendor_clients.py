"""Runs OpenSandbox's own Python SDK and CLI against the double.

What they can do against a real server they can do against the double; where the
two differ, the double is wrong. Usage: vendor_clients.py ADDRESS API_KEY OSB
where OSB is the path of the CLI.
"""

import json
import logging
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from opensandbox import SandboxManagerSync, SandboxSync
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule, SandboxFilter


def text(messages):
    return "".join(m.text for m in messages)


def check_sdk(config):
    sandbox = SandboxSync.create(
        "python:3.12-slim",
        connection_config=config,
        timeout=timedelta(minutes=5),
        env={"GREETING": "it's $HOME"},
        metadata={"team": "blue"},
        resource={"cpu": "500m", "memory": "512Mi"},
        network_policy=NetworkPolicy(
            default_action="deny", egress=[NetworkRule(action="allow", target="pkg.example.net")]
        ),
    )
    try:
        check_lifecycle(sandbox, config)
        check_commands(sandbox)
        check_files(sandbox)
        check_policy(sandbox)
    finally:
        sandbox.kill()
    try:
        sandbox.get_info()
        raise AssertionError("a killed sandbox still answers")
    except SandboxException:
        pass
    sandbox.close()


def check_lifecycle(sandbox, config):
    info = sandbox.get_info()
    assert info.status.state == "Running", info
    assert info.metadata["team"] == "blue", info
    assert sandbox.is_healthy()
    before = info.expires_at
    sandbox.renew(timedelta(minutes=20))
    assert sandbox.get_info().expires_at > before
    with SandboxManagerSync.create(connection_config=config) as manager:
        page = manager.list_sandbox_infos(SandboxFilter(states=["RUNNING"], metadata={"team": "blue"}))
        assert sandbox.id in [i.id for i in page.sandbox_infos], page
        none = manager.list_sandbox_infos(SandboxFilter(metadata={"team": "red"}))
        assert not none.sandbox_infos, none
    sandbox.pause()
    assert sandbox.get_info().status.state == "Paused"
    with SandboxManagerSync.create(connection_config=config) as manager:
        manager.resume_sandbox(sandbox.id)
    assert sandbox.get_info().status.state == "Running"
    assert sandbox.get_metrics().cpu_count > 0


def check_commands(sandbox):
    run = sandbox.commands.run('printf "$GREETING"; echo oops >&2; exit 3')
    assert run.exit_code == 3, run
    assert text(run.logs.stdout) == "it's $HOME", run
    assert text(run.logs.stderr) == "oops\n", run
    run = sandbox.commands.run("true")
    assert run.exit_code == 0 and run.complete, run
    run = sandbox.commands.run("kill -9 $$")
    assert run.exit_code == -1 and run.error.traceback == ["signal: killed"], run
    run = sandbox.commands.run(["printf", "%s|", "a b", "c"])
    assert text(run.logs.stdout) == "a b|c|", run
    run = sandbox.commands.run("sleep 5", opts=RunCommandOpts(timeout=timedelta(milliseconds=300)))
    assert run.exit_code == -1, run
    run = sandbox.commands.run(
        "pwd; echo $A", opts=RunCommandOpts(working_directory="/tmp", envs={"A": "b"})
    )
    assert text(run.logs.stdout) == "/tmp\nb\n", run
    started = sandbox.commands.run("sleep 30", opts=RunCommandOpts(background=True))
    assert sandbox.commands.get_command_status(started.id).running
    sandbox.commands.interrupt(started.id)
    status = sandbox.commands.get_command_status(started.id)
    assert not status.running and status.exit_code == -1, status
    done = sandbox.commands.run("echo hello", opts=RunCommandOpts(background=True))
    while sandbox.commands.get_command_status(done.id).running:
        pass
    logs = sandbox.commands.get_background_command_logs(done.id)
    assert logs.content == "hello\n" and logs.cursor == 6, logs


def check_files(sandbox):
    files = sandbox.files
    data = bytes(range(256)) * 300
    files.write_file("/workspace/a/b.bin", data, mode=640)
    assert files.read_bytes("/workspace/a/b.bin") == data
    assert files.read_bytes("/workspace/a/b.bin", range_header="bytes=1-3") == b"\x01\x02\x03"
    info = files.get_file_info(["/workspace/a/b.bin"])["/workspace/a/b.bin"]
    assert info.size == len(data) and info.mode == 640, info
    files.create_directories([WriteEntry(path="/workspace/d", mode=755)])
    files.write_files([WriteEntry(path="/workspace/d/one.txt", data="x=1\n", mode=644)])
    assert files.read_file("/workspace/d/one.txt") == "x=1\n"
    files.replace_contents(
        [ContentReplaceEntry(path="/workspace/d/one.txt", old_content="1", new_content="2")]
    )
    assert files.read_file("/workspace/d/one.txt") == "x=2\n"
    files.move_files([MoveEntry(src="/workspace/d/one.txt", dest="/workspace/d/two.txt")])
    files.set_permissions([SetPermissionEntry(path="/workspace/d/two.txt", mode=600)])
    assert files.get_file_info(["/workspace/d/two.txt"])["/workspace/d/two.txt"].mode == 600
    assert [f.path for f in files.search(SearchEntry(path="/workspace", pattern="*.txt"))] == [
        "/workspace/d/two.txt"
    ]
    assert [f.path for f in files.list_directory(DirectoryListEntry(path="/workspace"))] == ["/workspace/a", "/workspace/d"]
    files.delete_files(["/workspace/d/two.txt"])
    files.delete_directories(["/workspace/d"])
    try:
        files.read_bytes("/workspace/d/two.txt")
        raise AssertionError("a deleted file can be read")
    except SandboxException:
        pass


def check_policy(sandbox):
    policy = sandbox.get_egress_policy()
    assert policy.default_action == "deny", policy
    assert [(r.action, r.target) for r in policy.egress] == [("allow", "pkg.example.net")], policy
    sandbox.patch_egress_rules([NetworkRule(action="allow", target="example.com")])
    targets = [r.target for r in sandbox.get_egress_policy().egress]
    assert targets == ["example.com", "pkg.example.net"], targets


def check_cli(osb, address, key):
    home = tempfile.TemporaryDirectory()

    def run(*args, stdin=None, code=0):
        done = subprocess.run(
            [osb, "--domain", address, "--api-key", key, "--no-color", *args],
            capture_output=True, input=stdin, timeout=60, env={"HOME": home.name, "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done.stdout.decode()

    with home:
        made = json.loads(run("sandbox", "create", "--image", "python:3.12-slim", "--timeout", "10m",
                              "-m", "made-by=cli", "-o", "json"))
        box = made["id"]
        assert box in [i["id"] for i in json.loads(run("sandbox", "list", "-o", "json"))["items"]]
        assert json.loads(run("sandbox", "get", box, "-o", "json"))["status"]["state"] == "Running"
        assert "one\ntwo" in run("command", "run", box, "--", "sh", "-c", "echo one; echo two")
        run("command", "run", box, "--", "false", code=1)
        run("file", "write", box, "/tmp/note", "-c", "from the cli")
        assert "from the cli" in run("file", "cat", box, "/tmp/note")
        local = Path(home.name, "local")
        local.write_bytes(b"\x00\xff" * 1000)
        run("file", "upload", box, str(local), "/tmp/up")
        run("file", "download", box, "/tmp/up", str(local) + ".back")
        assert Path(str(local) + ".back").read_bytes() == local.read_bytes()
        run("sandbox", "renew", box, "-t", "15m")
        run("sandbox", "kill", box)
        run("sandbox", "get", box, code=1)
        bare = json.loads(run("sandbox", "create", "--image", "python:3.12-slim", "-o", "json"))["id"]
        run("sandbox", "kill", bare)


def main():
    logging.disable(logging.CRITICAL)  # expected failures would be logged with a traceback
    address, key, osb = sys.argv[1:]
    for proxied in (False, True):
        check_sdk(ConnectionConfigSync(domain=address, api_key=key, use_server_proxy=proxied,
                                       request_timeout=timedelta(seconds=20)))
        print("opensandbox SDK:", "through the server" if proxied else "direct", "ok")
    check_cli(osb, address, key)
    print("opensandbox CLI: ok")


if __name__ == "__main__":
    main()
