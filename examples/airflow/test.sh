#!/usr/bin/env bash
# Tests the Airflow examples against the real Airflow and its common.ai provider. They are
# installed from PyPI into a folder under the user's cache, once per requirements.txt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$(cd "$here/../../bin" && pwd):$PATH
command -v sandboxctl >/dev/null || { echo "There is no sandboxctl; run make build first." >&2; exit 1; }

cache=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/sandboxctl
venv=$cache/airflow-$(sha256sum "$here/requirements.txt" | cut -c1-12)
if [ ! -e "$venv/ready" ]; then
	python3 -m venv --clear "$venv"
	"$venv/bin/pip" install --quiet uv
	"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" -r "$here/requirements.txt"
	touch "$venv/ready"
fi

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export PATH=$venv/bin:$PATH AIRFLOW_HOME=$home PYTHONDONTWRITEBYTECODE=1
export AIRFLOW__CORE__DAGS_FOLDER=$here/dags AIRFLOW__CORE__LOAD_EXAMPLES=False
python -m pytest -q -p no:cacheprovider --basetemp "$home/pytest" "$here/tests" "$@"
