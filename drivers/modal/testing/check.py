"""Drives the double with Modal's own Python client, which knows nothing of it."""

import os
import sys
import tempfile

import modal
from modal.exception import ConflictError, NotFoundError, SandboxFilesystemNotFoundError, SandboxTimeoutError


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")
    print(f"ok   {what}")


def expect_error(what, kinds, call):
    try:
        call()
    except kinds as error:
        print(f"ok   {what}: {type(error).__name__}")
        return
    sys.exit(f"{what}: no error")


def timed_out(process):
    """The client reports a command timeout as 137 or as -1, whichever is first."""
    return process.wait() in (-1, 137)


def main():
    app = modal.App.lookup("vendor-check", create_if_missing=True)
    image = modal.Image.from_registry("python:3.12-slim")
    sandbox = modal.Sandbox.create(
        app=app, image=image, name="python-box", tags={"kind": "check"}, timeout=120, workdir="/work", env={"FROM": "create"}
    )

    process = sandbox.exec("sh", "-c", "echo out; echo err >&2; exit 3")
    expect("exit code", process.wait(), 3)
    expect("stdout", process.stdout.read(), "out\n")
    expect("stderr", process.stderr.read(), "err\n")

    process = sandbox.exec("sh", "-c", "printenv FROM; pwd", text=True)
    expect("environment and workdir", process.stdout.read(), "create\n/work\n")

    process = sandbox.exec("wc", "-c", text=False)
    process.stdin.write(bytes(range(256)) * 4096)
    process.stdin.write_eof()
    process.stdin.drain()
    expect("binary stdin", process.stdout.read().strip(), b"1048576")

    expect("command timeout", timed_out(sandbox.exec("sleep", "60", timeout=1)), True)
    expect("the sandbox survives it", sandbox.exec("true").wait(), 0)

    files = sandbox.filesystem
    content = bytes(range(256)) * 8192
    files.write_bytes(content, "/data/deep/blob")
    expect("file round trip", files.read_bytes("/data/deep/blob"), content)
    expect("stat", files.stat("/data/deep/blob").size, len(content))
    files.make_directory("/data/empty")
    expect("list", sorted(f.name for f in files.list_files("/data")), ["deep", "empty"])
    with tempfile.TemporaryDirectory() as directory:
        local = os.path.join(directory, "copy")
        files.copy_to_local("/data/deep/blob", local)
        with open(local, "rb") as copied:
            expect("copy to local", copied.read(), content)
    expect_error("missing file", SandboxFilesystemNotFoundError, lambda: files.read_bytes("/data/none"))
    files.remove("/data", recursive=True)
    expect_error("removed directory", SandboxFilesystemNotFoundError, lambda: files.stat("/data"))

    other = modal.Sandbox.create(app=app, image=image, tags={"kind": "other"}, block_network=True)
    listed = [s.object_id for s in modal.Sandbox.list(app_id=app.app_id, tags={"kind": "check"})]
    expect("list by tag", listed, [sandbox.object_id])
    expect("from name", modal.Sandbox.from_name("vendor-check", "python-box").object_id, sandbox.object_id)
    expect("tags", sandbox.get_tags(), {"kind": "check"})
    other.terminate()

    expect("still running", sandbox.poll(), None)
    sandbox.terminate(wait=True)
    expect("terminated", modal.Sandbox.from_id(sandbox.object_id).poll(), 137)
    expect_error("exec after the end", (ConflictError, NotFoundError), lambda: sandbox.exec("true").wait())

    short = modal.Sandbox.create(app=app, image=image, timeout=1)
    expect_error("lifetime", SandboxTimeoutError, short.wait)


if __name__ == "__main__":
    main()
