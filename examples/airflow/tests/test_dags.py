"""The Dags as users run them: through `airflow dags test`, and killed as a worker kills."""

import json
import os
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from conftest import names

DAGS = Path(__file__).parents[1] / "dags"


@pytest.fixture(scope="module")
def database():
    subprocess.run(["airflow", "db", "migrate"], check=True, capture_output=True)
    return sqlite3.connect(Path(os.environ["AIRFLOW_HOME"], "airflow.db"))


def run_dag(dag: str, database) -> tuple[dict, dict]:
    """Run a Dag; return each task's state and number of tries, and each task's XCom."""
    done = subprocess.run(["airflow", "dags", "test", dag], capture_output=True, text=True)
    query = "select task_id, state, try_number from task_instance where dag_id = ?"
    states = {task: (state, tries) for task, state, tries in database.execute(query, [dag])}
    assert states, done.stdout + done.stderr
    query = "select task_id, value from xcom where dag_id = ? and key = 'return_value'"
    return states, {task: json.loads(value) for task, value in database.execute(query, [dag])}


def test_all_dags_load():
    script = f"""
from airflow.dag_processing.dagbag import DagBag
bag = DagBag({str(DAGS)!r})
assert not bag.import_errors, bag.import_errors
print(*sorted(bag.dags))
"""
    out = subprocess.run(["python", "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.split()[-4:] == ["sandboxctl_agent", "sandboxctl_bash", "sandboxctl_exit_codes", "sandboxctl_retry"]


def test_create_exec_rm(database):
    states, xcom = run_dag("sandboxctl_bash", database)
    assert states == {task: ("success", 1) for task in ("create", "compute", "check", "remove")}
    assert xcom["create"]["labels"] == {"dag_run": "sandboxctl_bash"}
    assert xcom["compute"]["stdout"] == "332833500\n"
    assert names() == []


def test_exit_codes(database):
    states, xcom = run_dag("sandboxctl_exit_codes", database)
    assert {task: state for task, (state, _) in states.items()} == {
        "skipped": "skipped",
        "too_slow": "skipped",
        "as_data": "success",
        "piped": "failed",
    }
    assert (xcom["as_data"]["exit_code"], xcom["as_data"]["stdout"]) == (99, "partial\n")
    assert names() == []


def test_retry_reuses_the_sandbox(database):
    states, xcom = run_dag("sandboxctl_retry", database)
    assert states == {"resume": ("success", 2), "remove": ("success", 1)}
    assert int(xcom["resume"]) == 2
    assert names() == []


@pytest.mark.parametrize("command", ["sandboxctl run {args}", "true; sandboxctl run {args}; true"])
def test_a_killed_task_leaves_nothing(tmp_path, command):
    """on_kill sends SIGTERM to the process group once, and 5 seconds later the worker loses patience."""
    result = tmp_path / "result.json"
    args = f"--name killed --ttl 10m --result-file {result} -- sh -c 'echo runs; sleep 600'"
    operator = BashOperator(task_id="killed", bash_command=command.format(args=args))
    ended = []

    def execute():
        try:
            operator.execute({})
        except Exception as error:
            ended.append(error)

    task = threading.Thread(target=execute)
    task.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not is_running():
        time.sleep(0.05)
    killed_at = time.monotonic()
    operator.on_kill()
    task.join(30)
    assert not task.is_alive() and ended, "the task failed, as a killed one must"
    while names() and time.monotonic() - killed_at < 5:
        time.sleep(0.05)
    assert names() == []
    told = json.loads(result.read_text())
    assert told["ok"] is False and told["error"]["class"] == "interrupted" and told["reason"] == "canceled"


def is_running() -> bool:
    look = ["sandboxctl", "exec", "killed", "--", "sh", "-c", "grep -qs sleep /proc/[0-9]*/comm"]
    return subprocess.run(look, capture_output=True).returncode == 0
