#!/usr/bin/env python3
"""An agent loop whose hands are a sandbox: the model proposes commands, sandboxctl runs them.

Usage: agent.py TASK MODEL [ARG...]

MODEL is a program that stands for your call of a language model: it reads the
conversation as a JSON list on stdin and writes {"command": "..."} to run something, or
{"answer": "..."} to end. Nothing that the model says runs outside the sandbox.
"""

import json
import subprocess
import sys

TURNS = 20


def sandboxctl(command, *args):
    """Call sandboxctl and return its JSON; what it could not do is an exception."""
    done = subprocess.run(
        ["sandboxctl", command, "--json", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    result = json.loads(done.stdout)
    if not result["ok"]:
        error = result["error"]
        raise RuntimeError(f"{error['class']}: {error['message']} {error.get('hint', '')}")
    return result


def ask(model, conversation):
    done = subprocess.run(model, input=json.dumps(conversation), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def describe(result):
    """Say to the model what it needs to correct itself."""
    parts = []
    for stream in ("stdout", "stderr"):
        if text := result[stream]:
            cut = "[earlier output was cut]\n" if result[f"{stream}_truncated"] else ""
            parts.append(f"[{stream}]\n{cut}{text}")
    if result["reason"] == "timed_out":
        parts.append(f"[killed after {result['applied_timeout_s']:g} s]")
    elif result["exit_code"] != 0:
        parts.append(f"[exit code {result['exit_code']}]")
    return "\n".join(parts) or "(no output)"


def main():
    task, model = sys.argv[1], sys.argv[2:]
    # The lease ends the sandbox even if this program is killed.
    sandbox = sandboxctl("create", "--ttl", "30m", "--label", "made-by=agent.py")["name"]
    conversation = [{"role": "user", "content": task}]
    try:
        for _ in range(TURNS):
            reply = ask(model, conversation)
            if "answer" in reply:
                print(reply["answer"])
                return 0
            result = sandboxctl("exec", "--timeout", "60s", "--shell", sandbox, "--", reply["command"])
            conversation += [
                {"role": "assistant", "content": reply["command"]},
                {"role": "tool", "content": describe(result)},
            ]
        print(f"There is no answer after {TURNS} turns.", file=sys.stderr)
        return 1
    finally:
        sandboxctl("rm", "--force", sandbox)


if __name__ == "__main__":
    sys.exit(main())
