"""A retry that finds the sandbox of the attempt before, with its files."""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("sandboxctl_retry", start_date=datetime(2026, 1, 1), schedule=None, tags=["sandboxctl"]):
    # The name is the run's, so every attempt means the same sandbox. --if-not-exists
    # returns it if it is there, and refuses one that was created differently.
    resume = BashOperator(
        task_id="resume",
        bash_command="""
            set -euo pipefail
            sandboxctl create --json --if-not-exists --name "$SANDBOX" --ttl 30m
            sandboxctl exec --shell "$SANDBOX" -- 'echo attempt >>attempts'
            attempts=$(sandboxctl exec --field stdout --shell "$SANDBOX" -- 'wc -l <attempts')
            # The first attempt fails after half of the work.
            test "$attempts" -ge 2
            echo "$attempts"
        """,
        env={"SANDBOX": "retry-{{ dag_run.run_after.strftime('%Y%m%d-%H%M%S') }}"},
        append_env=True,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
    remove = BashOperator(
        task_id="remove",
        bash_command='sandboxctl rm --force "$SANDBOX"',
        env={"SANDBOX": "retry-{{ dag_run.run_after.strftime('%Y%m%d-%H%M%S') }}"},
        append_env=True,
        trigger_rule="all_done",
    )
    resume >> remove
