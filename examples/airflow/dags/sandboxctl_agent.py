"""An agent whose shell and files are a sandbox, through the common.ai provider.

It needs an LLM connection; the driver is whatever SandboxctlBackend is given.
"""

import sys
from datetime import datetime
from pathlib import Path

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets.sandbox import SandboxToolset
from airflow.sdk import DAG

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from sandboxctl_backend import SandboxctlBackend  # noqa: E402

with DAG("sandboxctl_agent", start_date=datetime(2026, 1, 1), schedule=None, tags=["sandboxctl"]):
    AgentOperator(
        task_id="analyse",
        prompt="Write a Python program that finds the primes below 100, run it and report their sum.",
        llm_conn_id="pydanticai_default",
        toolsets=[SandboxToolset(SandboxctlBackend(ttl="30m"))],
    )
