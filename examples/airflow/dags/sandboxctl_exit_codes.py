"""What a command's exit code makes of the task."""

import json
from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("sandboxctl_exit_codes", start_date=datetime(2026, 1, 1), schedule=None, tags=["sandboxctl"]):
    # run passes the command's exit code on, so a guest that exits 99 skips the task:
    # that is BashOperator's skip_on_exit_code. sandboxctl itself never exits with 99.
    skipped = BashOperator(task_id="skipped", bash_command="sandboxctl run --ttl 10m -- sh -c 'exit 99'")
    # 124 is a timeout; here it skips as well.
    too_slow = BashOperator(
        task_id="too_slow",
        bash_command="sandboxctl run --ttl 10m --timeout 1s -- sleep 60",
        skip_on_exit_code=[99, 124],
    )
    # A guest must not decide on the task's fate: only a failure of sandboxctl's own,
    # exit code 125 with ok false, fails it. The rest is data.
    as_data = BashOperator(
        task_id="as_data",
        bash_command="sandboxctl run --json --ttl 10m -- sh -c 'echo partial; exit 99' || test $? -ne 125",
        output_processor=json.loads,
    )
    # In a pipeline bash looks at the last command only, unless it is told otherwise.
    piped = BashOperator(
        task_id="piped",
        bash_command="set -o pipefail; sandboxctl run --ttl 10m -- sh -c 'echo out; exit 3' | cat",
    )
    [skipped, too_slow, as_data, piped]
