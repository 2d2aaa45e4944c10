"""Answers of a given form: asked for in each dialect, mended once, and told apart from a failure."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.factories import MODEL, tool
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.errors import CommandError, ErrorCode, OutputError, ProviderError
from yiem_nb.messages import AgentToolCall, AssistantMessage, UserMessage
from yiem_nb.models import Model
from yiem_nb.providers import ScriptedProvider
from yiem_nb.providers.http import HttpProvider
from yiem_nb.providers.local import LOCAL_MODEL, LocalServer, is_installed
from yiem_nb.structured import OutputForm
from yiem_nb.wire import FAMILIES, RequestOptions, encode
from yiem_nb.wire.output import closed


class Grape(BaseModel):
    name: str
    colour: Literal["red", "white"]


class Wine(BaseModel):
    title: str
    year: int = 2000
    grapes: list[Grape] = []


WINE = '{"title": "Barca", "year": 2019, "grapes": [{"name": "Baga", "colour": "red"}]}'


def agent(*turns: Any, **options: Any) -> tuple[Agent, ScriptedProvider]:
    provider = ScriptedProvider(list(turns), size=1000)
    return Agent(AgentOptions(model=MODEL, **options), provider), provider


async def test_an_answer_is_the_value_that_was_asked_for():
    one, provider = agent(WINE)
    wine = await one.prompt("Which?", output_type=Wine)
    assert wine == Wine(title="Barca", year=2019, grapes=[Grape(name="Baga", colour="red")])
    assert provider.requests[0].output_schema == Wine.model_json_schema()


@pytest.mark.parametrize("text", [f"```json\n{WINE}\n```", f"Here it is: {WINE} Enjoy!"])
async def test_words_around_the_object_do_no_harm(text):
    one, _ = agent(text)
    assert (await one.prompt("Which?", output_type=Wine)).title == "Barca"


async def test_an_answer_that_does_not_fit_is_mended_once_within_the_run():
    one, provider = agent('{"title": 3}', WINE)
    assert (await one.prompt("Which?", output_type=Wine)).year == 2019
    said = provider.requests[1].messages[-1].text
    assert "title: Input should be a valid string" in said
    assert len(one.state.messages) == 4


async def test_an_answer_that_never_fits_is_an_error_with_its_text():
    one, provider = agent("No idea.", "Still none.", "hello")
    with pytest.raises(OutputError) as caught:
        await one.prompt("Which?", output_type=Wine)
    assert caught.value.code is ErrorCode.PROVIDER_OUTPUT
    assert caught.value.text == "Still none."
    assert "no JSON" in str(caught.value)
    assert len(provider.requests) == 2
    assert (await one.prompt("And now?")).text == "hello"
    assert provider.requests[2].output_schema is None


async def test_an_answer_that_failed_is_that_failure():
    one, _ = agent(ProviderError("No way there.", code=ErrorCode.PROVIDER_UNREACHABLE))
    with pytest.raises(OutputError, match="No way there") as caught:
        await one.prompt("Which?", output_type=Wine)
    assert caught.value.code is ErrorCode.PROVIDER_UNREACHABLE


async def test_tools_may_be_called_before_the_answer():
    one, provider = agent(AgentToolCall("c1", "work", {}), WINE, tools=[tool()])
    assert (await one.prompt("Which?", output_type=Wine)).title == "Barca"
    assert all(request.output_schema is not None for request in provider.requests)


@dataclasses.dataclass
class Day:
    when: dt.date


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (float, '{"value": 1.5}', 1.5),
        (Day, '{"when": "2026-12-01"}', Day(dt.date(2026, 12, 1))),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Literal["a", "b"], '{"value": "b"}', "b"),
    ],
)
async def test_any_type_that_can_be_checked_will_do(output_type, text, value):
    one, provider = agent(text)
    assert await one.prompt("Which?", output_type=output_type) == value
    assert provider.requests[0].output_schema["type"] == "object"


def test_a_type_that_cannot_be_checked_is_refused_before_anything_is_sent():
    class Odd:
        pass

    with pytest.raises(CommandError, match="An answer cannot be of the type"):
        OutputForm(Odd)


# --- What is sent --------------------------------------------------------------------------


def request(api: str, **compat: Any) -> dict[str, Any]:
    model = Model(id="m", provider="p", api=api, compat=compat)
    options = RequestOptions(output_schema=Wine.model_json_schema())
    return encode("Be brief.", [UserMessage("x", 1)], None, model, options)


@pytest.mark.parametrize(
    ("api", "path"),
    [
        ("openai-chat", ("response_format", "json_schema", "schema")),
        ("openai-responses", ("text", "format", "schema")),
        ("anthropic-messages", ("output_config", "format", "schema")),
        ("gemini", ("generationConfig", "responseJsonSchema")),
        ("ollama", ("format",)),
    ],
)
def test_each_dialect_has_a_field_for_it_and_the_words_as_well(api, path):
    node: Any = request(api)
    assert "must fit this JSON schema" in json.dumps(node)
    for step in path:
        node = node[step]
    assert node["required"] == ["title", "year", "grapes"]
    assert node["additionalProperties"] is False
    assert node["$defs"]["Grape"]["additionalProperties"] is False
    plain = request(api, structured=False)
    assert path[-1] not in json.dumps(list(plain))
    assert "must fit this JSON schema" in json.dumps(plain)


def test_every_family_was_tried():
    assert len(FAMILIES) == 5


def test_an_object_of_any_names_is_not_made_strict():
    schema = OutputForm(dict[str, int]).schema
    assert closed(schema) == (dict(schema), False)


@given(st.text())
def test_whatever_a_model_says_is_a_value_or_a_complaint(text):
    form = OutputForm(Wine)
    answer = AssistantMessage.model_validate({"content": text, "stopReason": "stop"})
    first, second = form.repair(answer), form.repair(answer)
    assert second is None
    if first is None:
        assert isinstance(form.read(answer), Wine)
    else:
        with pytest.raises(OutputError):
            form.read(answer)


@pytest.mark.model
@pytest.mark.skipif(not is_installed(), reason="the embedded model is not installed")
async def test_a_model_of_135_million_parameters_answers_in_form():
    engine = LocalServer()
    provider = HttpProvider(engine.connect)
    try:
        one = Agent(AgentOptions(model=LOCAL_MODEL), provider)
        grape = await one.prompt("Name a grape of red wine and its colour.", output_type=Grape)
        assert grape.name
    finally:
        await provider.aclose()
        engine.stop()
