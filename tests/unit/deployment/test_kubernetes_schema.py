"""The manifests against Kubernetes' own schemas: no field that it does not know, none of the wrong type."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions

from tests.unit.deployment.manifests import FOLDER, documents, files, kustomization, parse

pytestmark = pytest.mark.spark


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


OLDEST = "1.28"  # as docs/kubernetes.md says: StatefulSet ordinals that start at 1, and the label that holds them
VERSIONS = [version for version in all_versions() if _number(version) >= _number(OLDEST)]


def validate(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", documents())
def test_every_manifest_fits_the_schema(name: str, version: str) -> None:
    validate(documents()[name], version)


def test_the_oldest_and_a_recent_version_are_among_those_checked() -> None:
    assert _number(VERSIONS[0]) == _number(OLDEST)
    assert _number(VERSIONS[-1]) >= (1, 37)


@pytest.mark.parametrize("name", documents())
def test_a_field_that_does_not_exist_is_noticed_in_every_manifest(name: str) -> None:
    for part in ("", "metadata", "spec"):
        wrong = copy.deepcopy(documents()[name])
        if part in wrong or not part:
            (wrong[part] if part else wrong)["replica"] = 3
            with pytest.raises(kubernetes_validate.ValidationError):
                validate(wrong, VERSIONS[-1])


POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)
MISTAKES: list[tuple[str, tuple[Any, ...], str, Any]] = [
    ("StatefulSet/coordinator", ("spec",), "replicas", "three"),
    ("StatefulSet/coordinator", POD, "securityContext", {"runAsNonroot": True}),
    ("StatefulSet/coordinator", CONTAINER, "livenessprobe", {"tcpSocket": {"port": 1}}),
    ("StatefulSet/coordinator", (*CONTAINER, "readinessProbe"), "periodSecond", 1),
    ("StatefulSet/coordinator", (*CONTAINER, "resources"), "limit", {"memory": "1Gi"}),
    ("StatefulSet/taskmanager", (*CONTAINER, "volumeMounts", 0), "path", "/tmp"),
    ("StatefulSet/taskmanager", (*POD, "volumes", 0), "configmap", {"name": "lockgate-settings"}),
    ("Pod/client", ("spec", "containers", 0), "arg", ["sleep"]),
    ("StatefulSet/zookeeper", ("spec", "volumeClaimTemplates", 0, "spec"), "storage", "1Gi"),
    ("PodDisruptionBudget/zookeeper", ("spec",), "minAvaliable", 2),
    ("NetworkPolicy/zookeeper", ("spec", "ingress", 0, "ports", 0), "port", {"name": "client"}),
    ("Service/lockgate", ("spec", "ports", 0), "targetPort", [7070]),
    ("PersistentVolumeClaim/lockgate-storage", ("spec",), "accessModes", "ReadWriteMany"),
]


@pytest.mark.parametrize(
    ("name", "place", "key", "value"), MISTAKES, ids=lambda item: item if type(item) is str else ""
)
def test_a_slip_of_the_pen_is_noticed(name: str, place: tuple[Any, ...], key: str, value: Any) -> None:
    wrong = copy.deepcopy(documents()[name])
    target: Any = wrong
    for step in place:
        target = target[step]
    target[key] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong, VERSIONS[-1])


def test_a_duplicate_key_is_noticed() -> None:
    with pytest.raises(yaml.YAMLError, match="repeated keys"):
        parse("metadata: {name: a, name: b}")


def test_the_kustomizations_name_every_file_and_have_only_fields_that_exist() -> None:
    cluster, client = kustomization(), kustomization("client")
    named = [*cluster["resources"], *(f"client/{name}" for name in client["resources"])]
    assert sorted(named) == [str(path.relative_to(FOLDER)) for path in files()]
    for certificate in (cluster, client):
        assert set(certificate) == {"apiVersion", "kind", "resources", "components"}
    image = kustomization("image")
    assert set(image) == {"apiVersion", "kind", "images"}
    assert (image["apiVersion"], image["kind"]) == ("kustomize.config.k8s.io/v1alpha1", "Component")
    assert all(set(item) <= {"name", "newName", "newTag", "digest"} for item in image["images"])


def test_no_manifest_contains_a_key_or_secret() -> None:
    assert not [name for name in documents() if name.startswith("Secret/")]
    for path in Path(FOLDER).rglob("*.*"):
        assert "PRIVATE KEY" not in path.read_text(encoding="utf-8")
