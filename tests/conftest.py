"""What all tests share: where the long ones stop, and an environment without anyone's keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yiem_nb.providers.catalogue import CLOUDS


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
