"""Folders of compiled functions: one for each process, and of limited size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import compile_cache

HOLD = """
import sys, pathlib, compile_cache
print(compile_cache.claim(pathlib.Path(sys.argv[1])).name, flush=True)
input()
"""


def holder(root: Path, worker: str = "") -> subprocess.Popen[str]:
    """A process that holds a folder until it is killed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_XDIST_WORKER": worker}
    command = [sys.executable, "-c", HOLD, str(root)]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def folder_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.skipif(sys.platform == "win32", reason="locks files as POSIX does")
def test_no_two_processes_have_one_folder_and_a_killed_one_gives_it_back(tmp_path: Path) -> None:
    processes = [holder(tmp_path)]
    try:
        assert folder_of(processes[0]) == "0"
        for worker in ("", "gw1", "gw1"):
            processes.append(holder(tmp_path, worker))
        assert {folder_of(process) for process in processes[1:]} == {"1", "2", "3"}
        processes[0].kill()
        processes[0].wait()
        processes.append(holder(tmp_path))
        assert folder_of(processes[-1]) == "0"
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_the_oldest_files_go_first(tmp_path: Path) -> None:
    for age, name in enumerate(("newest", "newer", "old", ".lock")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    compile_cache._trim(tmp_path, 20)
    assert {path.name for path in tmp_path.iterdir()} == {"newest", "newer", ".lock"}
