from __future__ import annotations

import pytest

from ottla.cluster.settings import BROKER_SETTINGS, SettingsError, settings_from_environment
from ottla.cluster.settings.environment import variable_of


def test_variables_become_settings() -> None:
    environment = {"OTTLA_LOG_SEGMENT_BYTES": "5", "OTTLA_BROKER_ID": "1", "PATH": "/bin", "OTTLA_HOME": "/x"}
    assert settings_from_environment(environment, other={"OTTLA_HOME"}) == {"log.segment.bytes": "5", "broker.id": "1"}


def test_no_two_settings_share_a_variable() -> None:
    variables = [variable_of(name) for name in BROKER_SETTINGS]
    assert len(set(variables)) == len(variables)


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(SettingsError, match="OTTLA_LOG_SEGMNT_BYTES; did you mean OTTLA_LOG_SEGMENT_BYTES"):
        settings_from_environment({"OTTLA_LOG_SEGMNT_BYTES": "5"})
    with pytest.raises(SettingsError, match="unknown variable OTTLA_LOG_NOTHING_OF_THE_KIND"):
        settings_from_environment({"OTTLA_LOG_NOTHING_OF_THE_KIND": "5"})


@pytest.mark.parametrize("name", ["PORT", "SERVICE_HOST", "SERVICE_PORT", "PORT_9092_TCP_ADDR", "LAKE", "HOME", ""])
def test_a_variable_that_looks_like_no_setting_is_left_alone(name: str) -> None:
    strangers: list[str] = []
    environment = {f"OTTLA_{name}": "x", "OTTLA_NUM_PARTITIONS": "3"}
    assert settings_from_environment(environment, strangers=strangers) == {"num.partitions": "3"}
    assert strangers == [f"OTTLA_{name}"]
