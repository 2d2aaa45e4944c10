"""What all tests share: where the long ones stop, and an environment without anyone's keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from yiem_nb.providers.catalogue import CLOUDS

# CI tries the same examples each time; `--full` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if os.environ.get("YIEM_TESTS_FULL") else "same")


def share(full: int, ci: int) -> int:
    """How often a long test runs: all of it with ``--full``, else CI's share."""
    return full if os.environ.get("YIEM_TESTS_FULL") else ci


@pytest.fixture(autouse=True)
def no_keys_and_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep keys, configuration and data of whoever runs the tests out of them."""
    for cloud in CLOUDS.values():
        monkeypatch.delenv(cloud.key_name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
