import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture(scope="session", autouse=True)
def sandboxctl(tmp_path_factory):
    """sandboxctl on PATH, with a state directory of its own that is empty again in the end."""
    assert shutil.which("sandboxctl"), "test.sh puts sandboxctl on PATH"
    os.environ["SANDBOXCTL_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    for name in ("SANDBOXCTL_OUTPUT", "SANDBOXCTL_DRIVER"):
        os.environ.pop(name, None)
    yield
    left = names()
    subprocess.run(["sandboxctl", "rm", "--force", "--all"], check=True, capture_output=True)
    assert left == [], "sandboxes were left behind"


def names() -> list[str]:
    listing = subprocess.run(["sandboxctl", "ls", "--quiet"], check=True, capture_output=True, text=True)
    return listing.stdout.split()
