"""Values, spending, keys and a countdown, as a person meets them in a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_openai import Reply, text
from tests.kernel.scenes import notebook

pytestmark = pytest.mark.kernel

WINE = """
import pydantic
class Wine(pydantic.BaseModel):
    name: str
    year: int
"""


def test_a_cell_gets_a_value_and_its_spending_is_told(tmp_path: Path) -> None:
    replies = [text('{"name": "Barca"}'), text('{"name": "Barca", "year": 2019}'), text("no")]
    with notebook(tmp_path, *replies, text("never")) as (kernel, server):
        kernel.run(WINE)
        got = kernel.run("wine = yiem.ask('Which?', Wine); print(wine.year)", cell_id="A")
        assert got.status == "ok"
        assert "2019" in got.stream
        assert "response_format" in server.requests[0]
        assert "year: Field required" in str(server.requests[1]["messages"][-1])
        told = kernel.run("%yiem usage").stream
        assert "custom/fake-1" in told
        assert told.splitlines()[-1].startswith("total")


def test_a_cap_in_the_users_file_holds_where_nobody_can_be_asked(tmp_path: Path) -> None:
    config = tmp_path / "config" / "yiem_nb"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[budget]\ntokens_per_turn = 100\n")
    (config / "config.toml").chmod(0o600)
    with notebook(tmp_path, text("never"), XDG_CONFIG_HOME=str(tmp_path / "config")) as (k, server):
        said = k.run("%%yiem\nhello", cell_id="A", allow_stdin=False)
        assert "the cap is 100 tokens" in said.error
        assert server.requests == []
        assert k.run("%yiem usage").stream == "Nothing was used yet.\n"


def test_a_try_that_waits_is_seen_and_the_next_one_answers(tmp_path: Path) -> None:
    busy = Reply(status=429, headers={"retry-after": "1"}, raw=b"slow down")
    with notebook(tmp_path, busy, text("here")) as (kernel, server):
        said = kernel.run("%%yiem\nhello", cell_id="A")
        assert said.status == "ok"
        assert len(server.requests) == 2


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    key = "sk-canary-9999999999999999"
    with notebook(tmp_path, OPENAI_API_KEY=key) as (kernel, _):
        said = kernel.run("%yiem key show openai").stream
        assert "from the environment" in said
        assert "…9999" in said
        assert key not in said
        assert "is nowhere" in kernel.run("%yiem key show anthropic").stream
        wrong = kernel.run("%yiem /key steal")
        assert "Write %yiem /key set PROVIDER" in wrong.error
