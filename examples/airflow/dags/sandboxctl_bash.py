"""Create, use and remove a sandbox with BashOperator; what each says travels as XCom."""

import json
from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("sandboxctl_bash", start_date=datetime(2026, 1, 1), schedule=None, tags=["sandboxctl"]):
    # The last line of the output is the XCom, and --json writes one line, last.
    create = BashOperator(
        task_id="create",
        bash_command="sandboxctl create --json --ttl 30m --label dag_run=$AIRFLOW_CTX_DAG_ID",
        output_processor=json.loads,
    )
    # Values reach the script as variables, never as text of the script.
    sandbox = {"SANDBOX": "{{ ti.xcom_pull('create')['name'] }}"}
    compute = BashOperator(
        task_id="compute",
        bash_command="""
            sandboxctl exec --json --timeout 60s "$SANDBOX" -- \
                python3 -c 'print(sum(n * n for n in range(1000)))'
        """,
        env=sandbox,
        append_env=True,
        output_processor=json.loads,
    )
    # One value alone, without jq and without a template that Jinja would trip over.
    check = BashOperator(
        task_id="check",
        bash_command='test "$SUM" = "$(sandboxctl exec --field stdout "$SANDBOX" -- echo 332833500)"',
        env={**sandbox, "SUM": "{{ ti.xcom_pull('compute')['stdout'].strip() }}"},
        append_env=True,
    )
    # Also when something before it failed; --force does not mind a sandbox that is gone.
    remove = BashOperator(
        task_id="remove",
        bash_command='sandboxctl rm --json --force "$SANDBOX"',
        env=sandbox,
        append_env=True,
        trigger_rule="all_done",
    )
    create >> compute >> check >> remove
