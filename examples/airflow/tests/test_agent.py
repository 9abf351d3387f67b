"""The provider's four tools, called by a pydantic-ai agent whose model is a script."""

import asyncio

from airflow.providers.common.ai.toolsets.sandbox import SandboxToolset
from conftest import names
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from sandboxctl_backend import SandboxctlBackend

CALLS = [
    ("write_file", {"path": "work/primes.py", "content": "print([n for n in range(2, 30) if all(n % d for d in range(2, n))])"}),
    ("list_directory", {"path": "work"}),
    ("run_command", {"command": "python3 work/primes.py | tee work/out; echo warn >&2; exit 3"}),
    ("read_file", {"path": "work/out"}),
    ("run_command", {"command": "sleep 30", "timeout_seconds": 1}),
    ("read_file", {"path": "work/missing"}),
    ("run_command", {"command": "cat work/out | wc -l"}),
]


def test_four_tools():
    answers, alive = [], []

    def model(messages, info):
        answers.extend(part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart | RetryPromptPart))
        if len(answers) == len(CALLS):
            alive.extend(names())
            return ModelResponse(parts=[TextPart("done")])
        tool, args = CALLS[len(answers)]
        return ModelResponse(parts=[ToolCallPart(tool, args)])

    agent = Agent(FunctionModel(model), toolsets=[SandboxToolset(SandboxctlBackend())])
    assert asyncio.run(agent.run("compute the primes")).output == "done"

    primes = "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]"
    assert answers[0].startswith("Wrote ")
    assert answers[1] == "primes.py"
    assert f"[stdout]\n{primes}" in answers[2] and "[stderr]\nwarn" in answers[2] and "[exit code: 3]" in answers[2]
    assert primes in answers[3]
    assert "[timed out after 1s]" in answers[4]
    assert "work/missing" in answers[5]
    assert "1" in answers[6], "the sandbox outlived the timeout, and so did its files"
    assert len(alive) == 1, "one sandbox served the whole run"
    assert names() == [], "it ended with the run"
