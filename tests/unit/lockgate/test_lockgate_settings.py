"""Settings: layers, refusals with a hint, conversion."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.places import Places
from lockgate_common.tls import TlsFiles
from lockgate_common.token import parse_jwt
from lockgate_common.uris import absolute
from lockgate_coordinator.runtime.settings import CoordinatorSettings, JwtSettings
from lockgate_taskmanager.runtime.settings import TaskManagerSettings

from lockgate.errors import SettingsError
from lockgate.settings import load_settings
from lockgate.settings_groups import CoordinatorGroup, JwtGroup, TaskManagerGroup

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def write(text: str, name: str = "lockgate.toml") -> str:
    Path(name).write_text(text)
    return name


def test_defaults_need_nothing() -> None:
    settings = load_settings(environment={})
    assert settings.cluster.name == "default"
    assert settings.coordinator.bind == "127.0.0.1:7070"


def test_options_override_the_environment_which_overrides_the_file() -> None:
    write("[zookeeper]\nhosts = 'file:1'\nsession_timeout_ms = 5000\n[taskmanager]\nslots = 3\nid = 'tm'\n")
    env = {"LOCKGATE_ZOOKEEPER_HOSTS": "env:1", "LOCKGATE_TASKMANAGER_SLOTS": "4"}
    settings = load_settings(None, {"taskmanager": {"slots": 5, "id": None}}, env)
    assert settings.zookeeper.hosts == "env:1"
    assert settings.zookeeper.session_timeout_ms == 5000
    assert (settings.taskmanager.slots, settings.taskmanager.id) == (5, "tm")


def test_coordinators_and_task_managers_wait_for_zookeeper_as_long_as_the_settings_say() -> None:
    write("[zookeeper]\nconnect_timeout_ms = 60000\n[storage]\ndirectory = 'snapshots'\n")
    settings = load_settings(environment={})
    assert settings.coordinator_settings().connect_timeout_ms == 60_000
    assert settings.task_manager_settings().connect_timeout_ms == 60_000


def test_shorthands_are_weaker_than_the_full_names() -> None:
    env = {"LOCKGATE_ZOOKEEPER": "short:1", "LOCKGATE_SECRET_FILE": "/s"}
    assert load_settings(environment=env).zookeeper.hosts == "short:1"
    assert load_settings(environment=env).security.secret_file == "/s"
    assert load_settings(environment={**env, "LOCKGATE_ZOOKEEPER_HOSTS": "long:1"}).zookeeper.hosts == "long:1"


def test_lists_and_maps_in_the_environment() -> None:
    env = {
        "LOCKGATE_CLUSTER_COORDINATORS": "a:1, b:2",
        "LOCKGATE_TASKMANAGER_SPARK_OPTIONS": '{"spark.driver.memory": "2g"}',
    }
    settings = load_settings(environment=env)
    assert settings.cluster.coordinators == ("a:1", "b:2")
    assert settings.taskmanager.spark_options == {"spark.driver.memory": "2g"}


def test_other_variables_of_lockgate_are_left_alone() -> None:
    load_settings(
        environment={
            "LOCKGATE_CLUSTER": "a:1",
            "LOCKGATE_LOG_LEVEL": "DEBUG",
            "LOCKGATE_LOG_FORMAT": "json",
            "LOCKGATE_FAULT": "x",
            "LOCKGATE_TEST_X": "1",
        }
    )


def test_variables_of_the_compose_file_are_left_alone_and_no_others_like_them() -> None:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    names = set(re.findall(r"\$\{(LOCKGATE_\w+)", text))
    assert {"LOCKGATE_IMAGE", "LOCKGATE_PORT_3"} < names
    load_settings(environment=dict.fromkeys(names, "x"))
    for name in ("LOCKGATE_PORT", "LOCKGATE_PORT_4", "LOCKGATE_PORT_7070_TCP", "LOCKGATE_IMAGES", "LOCKGATE_INPUTS"):
        assert name not in names
        with pytest.raises(SettingsError, match=f"unknown environment variable {name}; "):
            load_settings(environment={name: "x"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[zookeper]\nhosts='a'", r"unknown group \[zookeper\]; did you mean zookeeper\?"),
        ("[zookeeper]\nhost='a'", r"unknown key zookeeper\.host; did you mean zookeeper\.hosts\?"),
        ("slots = 3", r"unknown group \[slots\]; did you mean taskmanager\.slots\?"),
        ("[taskmanager]\nsecret_file='x'", "unknown key taskmanager.secret_file; did you mean security.secret_file"),
        ("taskmanager = 3", r"write a \[taskmanager\] table"),
        ("[taskmanager]\nslots = 0", "taskmanager.slots cannot be 0: too small; use 1 or more"),
        ("[taskmanager]\nslots = 'many'", "taskmanager.slots cannot be 'many'"),
        ("[cluster]\nname = 'a/b'", "cluster.name cannot be 'a/b'"),
        ("[zookeeper]\nhosts = 'zk:x'", r"lockgate\.toml: zookeeper\.hosts cannot be 'zk:x': it must be host:port\["),
        ("[taskmanager", "is not valid TOML"),
        ("a = " + "1" * 5_000, "is not valid TOML"),
        ("a = " + "[" * 100_000 + "]" * 100_000, "is nested too deeply"),
        (f"[zookeeper]\n{'x' * 100_000} = 1", r"\(there is more\)$"),
    ],
)
def test_a_bad_file_is_refused_with_a_hint(text: str, words: str) -> None:
    write(text)
    with pytest.raises(SettingsError, match=words) as caught:
        load_settings(environment={})
    assert "lockgate.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            {"LOCKGATE_ZOKEEPER": "a"},
            r"unknown environment variable LOCKGATE_ZOKEEPER; did you mean LOCKGATE_ZOOKEEPER\?",
        ),
        ({"LOCKGATE_TASKMANAGER_SLOT": "2"}, "did you mean LOCKGATE_TASKMANAGER_SLOTS"),
        ({"LOCKGATE_TASKMANAGER_SLOTS": "two"}, "LOCKGATE_TASKMANAGER_SLOTS cannot be 'two'"),
        ({"LOCKGATE_TASKMANAGER_SPARK_OPTIONS": "a=b"}, "must be a JSON object"),
        ({"LOCKGATE_TASKMANAGER_SPARK_OPTIONS": '{"a":' * 100_000}, "must be a JSON object"),
        ({"LOCKGATE_TASKMANAGER_SPARK_OPTIONS": "[" * 100_000 + "]" * 100_000}, "must be a JSON object"),
    ],
)
def test_a_bad_variable_is_refused_with_a_hint(env: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(environment=env)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"taskmanager": {"slots": 0}}, "--slots cannot be 0: too small; use 1 or more"),
        ({"taskmanager": {"slots": 1025}}, "--slots cannot be 1025: too large; use 1024 or less"),
        ({"zookeeper": {"session_timeout_ms": 499}}, "--session-timeout-ms cannot be 499: too small; use 500 or more"),
        ({"cluster": {"name": "a/b"}}, r"--cluster-name cannot be 'a/b': string should match pattern '\^\[A-Za-z0-9"),
        ({"zookeeper": {"hosts": "zk:99999"}}, "--zookeeper cannot be 'zk:99999': it must be host:port"),
    ],
)
def test_a_bad_option_is_named_as_it_was_typed(given: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(None, given, {})


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings file nowhere\.toml"):
        load_settings("nowhere.toml", environment={})
    with pytest.raises(SettingsError, match=r"elsewhere\.toml"):
        load_settings(environment={"LOCKGATE_CONFIG": "elsewhere.toml"})


def test_conversion_to_the_processes(tmp_path: Path) -> None:
    write("[storage]\ndirectory='store'\n[zookeeper]\nhosts='z:1'\n[cluster]\nname='c'\n[taskmanager]\nwork_dir='w'\n")
    settings = load_settings(environment={})
    coordinator = settings.coordinator_settings()
    assert coordinator.storage == str(tmp_path / "store")
    assert (coordinator.zookeeper, coordinator.cluster) == ("z:1", "c")
    assert coordinator.credentials.secret  # made on first use
    coordinator.check()
    manager = settings.task_manager_settings()
    assert manager.credentials == coordinator.credentials
    assert manager.work_dir == str(tmp_path / "w")
    manager.check()


def test_an_issuer_of_jwts() -> None:
    assert load_settings(None, {"storage": {"directory": "s"}}, {}).coordinator_settings().jwt is None
    write("[storage]\ndirectory='s'\n[jwt]\nissuer='https://i'\naudience='a'\nkeys='k.json'\n")
    env = {"LOCKGATE_JWT_ALGORITHMS": "ES256, PS256", "LOCKGATE_JWT_ROLES": '{"team": "submit"}'}
    found = load_settings(environment=env).coordinator_settings()
    assert found.jwt == JwtSettings(
        "https://i", "a", absolute("k.json"), ("ES256", "PS256"), "role", {"team": "submit"}
    )
    found.check()
    with pytest.raises(SettingsError, match=r'LOCKGATE_JWT_ROLES must be a JSON object, such as {"operators"'):
        load_settings(environment={"LOCKGATE_JWT_ROLES": "submit"})


def test_a_client_with_a_jwt_needs_tls(tmp_path: Path) -> None:
    jwt = tmp_path / "jwt"
    jwt.write_text("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2ln\n")
    jwt.chmod(0o600)
    env = {"LOCKGATE_TOKEN_FILE": str(jwt)}
    with pytest.raises(SettingsError, match="needs coordinators with TLS"):
        load_settings(environment=env).credentials()
    shown = load_settings(environment={**env, "LOCKGATE_TLS_AUTHORITY": "ca.pem"}).credentials()
    assert shown.token == parse_jwt(jwt.read_text())
    assert "c2ln" not in repr(shown) + repr(shown.token)


def test_a_coordinator_without_storage_names_the_setting() -> None:
    with pytest.raises(SettingsError, match="give --storage DIRECTORY"):
        load_settings(environment={}).coordinator_settings()


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_settings(environment={"LOCKGATE_SECRET_FILE": str(secret)}).credentials()


def test_tls_needs_no_secret_group() -> None:
    write("[tls]\nauthority='ca.pem'\n")
    tls = load_settings(environment={}).credentials().tls
    assert tls is not None
    assert tls.authority.endswith("/ca.pem")
    assert tls.certificate == ""


def test_zookeeper_is_reached_in_plain_text_by_default() -> None:
    write("[tls]\ncertificate='c.pem'\nkey='k.pem'\nauthority='ca.pem'\n")
    assert load_settings(environment={}).credentials().zookeeper is None


def test_tls_with_zookeeper_defaults_to_the_general_files(tmp_path: Path) -> None:
    write("[tls]\ncertificate='c.pem'\nkey='k.pem'\nauthority='ca.pem'\n")
    env = {"LOCKGATE_ZOOKEEPER_TLS": "true"}
    general = load_settings(environment=env).credentials().zookeeper
    assert general == TlsFiles(*(str(tmp_path / name) for name in ("c.pem", "k.pem", "ca.pem")))
    own = {f"LOCKGATE_ZOOKEEPER_{part}": f"/{part}" for part in ("CERTIFICATE", "KEY", "AUTHORITY")}
    found = load_settings(environment={**env, **own}).zookeeper_tls()
    assert found == TlsFiles("/CERTIFICATE", "/KEY", "/AUTHORITY")


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("authority='ca.pem'", "zookeeper.tls is not set, but files for it are; set zookeeper.tls = true"),
        ("tls=true", r"zookeeper.tls needs zookeeper.authority \(or tls.authority\)"),
        ("tls=true\nauthority='ca.pem'\nkey='k.pem'", "needs a certificate and its key, or neither"),
    ],
)
def test_tls_with_zookeeper_that_is_set_by_halves_is_refused(group: str, said: str) -> None:
    write(f"[zookeeper]\n{group}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings(environment={}).credentials()


def test_mutual_tls_without_all_files_is_refused_when_a_process_or_a_client_starts() -> None:
    write("[tls]\nauthority = 'ca.pem'\ncertificate = 'host.pem'\n")
    settings = load_settings(None, {"storage": {"directory": "s"}}, {"LOCKGATE_TLS_MUTUAL": "true"})
    for start in (settings.coordinator_settings, settings.task_manager_settings, settings.credentials):
        with pytest.raises(SettingsError, match=r"tls\.mutual needs .*: set tls\.key \(or LOCKGATE_TLS_KEY\)"):
            start()


def test_certificates_have_one_role_or_several() -> None:
    write("[tls]\nmutual = true\n[tls.roles]\nalice = 'read'\n'ops.example' = ['submit', 'operate']\n")
    roles = {"alice": ("read",), "ops.example": ("submit", "operate")}
    assert load_settings(environment={}).certificate_roles() == roles
    environment = {"LOCKGATE_TLS_MUTUAL": "true", "LOCKGATE_TLS_ROLES": '{"bob": "admin"}'}
    assert load_settings(environment=environment).certificate_roles() == {"bob": ("admin",)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tls.roles]\nalice = 'root'", "'alice': 'root' is not a role; valid roles are read, submit"),
        ("[tls.roles]\nalice = []", "'alice': 'nothing' is not a role"),
        ("[tls.roles]\nalice = 3", "'alice': "),
        ("[tls.roles]\nalice = 'read'", r"set tls\.mutual = true"),
    ],
)
def test_roles_that_mean_nothing_are_refused(text: str, sentence: str) -> None:
    write(f"[storage]\ndirectory = 's'\n{text}\n")
    with pytest.raises(SettingsError, match=sentence):
        load_settings(environment={}).coordinator_settings()


@pytest.mark.parametrize(
    ("group", "settings", "other_names"),
    [
        (CoordinatorGroup(), CoordinatorSettings("z", "s"), {"id": "coordinator_id"}),
        (JwtGroup(), JwtSettings("", "", ""), {}),
        (TaskManagerGroup(), TaskManagerSettings("z", ""), {"id": "task_manager_id"}),
    ],
)
def test_defaults_match_the_processes(group: Any, settings: Any, other_names: dict[str, str]) -> None:
    known = {field.name for field in dataclasses.fields(settings)}
    for name, value in group.model_dump().items():
        assert other_names.get(name, name) in known
        assert getattr(settings, other_names.get(name, name)) == value, name


def test_limits_of_jobs_without_the_role_code_come_from_the_settings() -> None:
    write("[security]\nsecret_file = 'own/secret'\n[storage]\ndirectory = 's3://b/l?region=r'\n[tls]\nkey = 'own/k'\n")
    environment = {
        "LOCKGATE_TASKMANAGER_FOLDERS": "data, x/a://b, s3://b/in",
        "LOCKGATE_TASKMANAGER_VARIABLES": "SHOP_*,X",
    }
    settings = load_settings(environment=environment)
    assert settings.limits_of_jobs() == {
        "folders": (absolute("data"), absolute("x/a:/b"), "s3://b/in"),
        "variables": ("SHOP_*", "X"),
    }
    private = settings.private_places()
    assert {"own/secret", "own/tokens.json", "s3://b/l/default?region=r", absolute("own/k")} <= set(private)


def test_the_settings_file_is_private_wherever_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "production.toml"
    file.touch()
    for settings in (load_settings(file, environment={}), load_settings(environment={"LOCKGATE_CONFIG": str(file)})):
        assert Places(settings.private_places()).problem(str(file))
