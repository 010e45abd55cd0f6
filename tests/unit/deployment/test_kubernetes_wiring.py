"""What a schema cannot see in the manifests: that selectors, ports, volumes, budgets and policies fit each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deployment.manifests import (
    FOLDER,
    ROOT,
    Document,
    Pod,
    block,
    client,
    documents,
    kustomization,
    of_kind,
    parse,
    pods,
    selects,
)

SETS = of_kind("StatefulSet")
# Made by the operator, see docs/kubernetes.md: name and keys.
SECRETS = {
    "lockgate-secret": {"secret"},
    "lockgate-tokens": {"tokens.json"},
    "lockgate-tls": {"tls.crt", "tls.key", "ca.crt"},
}
CLIENT = {"lockgate-client": "true"}
SCRAPER = {"lockgate-metrics": "true"}


def _name(subject: Document | Pod) -> str:
    return subject.name if isinstance(subject, Pod) else f"{subject['kind']}/{subject['metadata']['name']}"


def _selected(selector: Document) -> list[Document]:
    return [set_ for set_ in SETS if selects(selector, set_["spec"]["template"]["metadata"]["labels"])]


def _container_ports(set_: Document) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for container in set_["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    }


ALL = [*pods(), client()]


@pytest.mark.parametrize("document", documents().values(), ids=_name)
def test_everything_is_in_the_namespace_and_carries_the_label(document: Document) -> None:
    if document["kind"] != "Namespace":
        assert document["metadata"]["namespace"] == "lockgate"
    assert document["metadata"]["labels"]["app.kubernetes.io/part-of"] == "lockgate"


@pytest.mark.parametrize("set_", SETS, ids=_name)
def test_a_set_selects_its_own_pods_and_is_served_by_its_headless_service(set_: Document) -> None:
    assert _selected(set_["spec"]["selector"]) == [set_]
    service = documents()[f"Service/{set_['spec']['serviceName']}"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert _selected({"matchLabels": service["spec"]["selector"]}) == [set_]
    assert {port["name"] for port in service["spec"]["ports"]} == set(_container_ports(set_))


@pytest.mark.parametrize("service", of_kind("Service"), ids=_name)
def test_a_service_leads_to_ports_that_its_pods_have(service: Document) -> None:
    (set_,) = _selected({"matchLabels": service["spec"]["selector"]})
    for port in service["spec"]["ports"]:
        assert _container_ports(set_)[port["targetPort"]] == port["port"]


def test_budgets_leave_a_quorum_and_a_standby() -> None:
    for set_ in SETS:
        (budget,) = [
            document for document in of_kind("PodDisruptionBudget") if _selected(document["spec"]["selector"]) == [set_]
        ]
        replicas = set_["spec"]["replicas"]
        spec = budget["spec"]
        lost = spec["maxUnavailable"] if "maxUnavailable" in spec else replicas - spec["minAvailable"]
        assert lost == 1, "drains must be possible, and take one at a time"
        assert replicas - lost > replicas / 2
        if set_["metadata"]["name"] == "zookeeper":
            assert replicas % 2 == 1
            # A member that is not ready may be the one that the quorum is waiting for.
            assert "unhealthyPodEvictionPolicy" not in spec


def test_two_zookeeper_servers_never_share_a_node_and_the_others_do_so_only_when_they_must() -> None:
    for set_ in SETS:
        anti = set_["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
        required = anti.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        preferred = [
            item["podAffinityTerm"] for item in anti.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        ]
        assert bool(required) == (set_["metadata"]["name"] == "zookeeper")
        for term in [*required, *preferred]:
            assert term["topologyKey"] == "kubernetes.io/hostname"
            assert _selected(term["labelSelector"]) == [set_]


@pytest.mark.parametrize("pod", ALL, ids=_name)
def test_existing_volumes_are_used(pod: Pod) -> None:
    claims = {claim["metadata"]["name"] for claim in pod.claims}
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    used = {mount["name"] for container in pod.containers for mount in container["volumeMounts"]}
    assert used == set(volumes) | claims
    for volume in volumes.values():
        if "configMap" in volume:
            assert f"ConfigMap/{volume['configMap']['name']}" in documents()
        elif "secret" in volume:
            assert volume["secret"]["secretName"] in SECRETS
        elif "projected" in volume:
            assert pod.secret_keys().items() <= SECRETS.items()
        elif "persistentVolumeClaim" in volume:
            assert f"PersistentVolumeClaim/{volume['persistentVolumeClaim']['claimName']}" in documents()
        else:
            assert volume["emptyDir"]["sizeLimit"], "a full node is everybody's problem"


@pytest.mark.parametrize("pod", ALL, ids=_name)
def test_the_key_is_for_the_group_of_the_pod_and_not_for_everyone(pod: Pod) -> None:
    """Or Lockgate refuses it. Kubelet makes the files root's, and of the group fsGroup."""
    for volume in pod.spec["volumes"]:
        source = volume.get("secret", {})
        keys = {item["key"] for item in source.get("items", [])} or SECRETS.get(source.get("secretName"), set())
        if "tls.key" in keys:
            assert source["defaultMode"] == 0o440
            assert pod.spec["securityContext"]["fsGroup"] == pod.spec["securityContext"]["runAsGroup"]


def test_the_secrets_are_made_as_the_documentation_says() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    for name, keys in SECRETS.items():
        command = re.search(rf"kubectl -n lockgate create secret generic {name} ((?:.*\\\n)*.*)", page)
        assert command, f"docs/kubernetes.md does not say how to make {name}"
        assert set(re.findall(r"--from-file=([\w.]+)", command[1])) == keys


@pytest.mark.parametrize("pod", ALL, ids=_name)
def test_pods_are_restricted(pod: Pod) -> None:
    assert documents()["Namespace/lockgate"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert pod.spec["securityContext"]["runAsNonRoot"] is True
    assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
    for container in pod.containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= set(container["resources"])


def test_pods_run_as_the_user_of_the_image() -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "docker/Dockerfile").read_text(encoding="utf-8"), re.M)
    for pod in ALL:
        context = pod.spec["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (int(user[0]), int(user[1]))
        assert context["fsGroup"] == int(user[1])


def test_one_image_everywhere_which_one_file_can_replace() -> None:
    (image,) = {container["image"] for pod in ALL for container in pod.containers}
    assert [image["name"] for image in kustomization("image")["images"]] == [image.partition(":")[0]]
    assert kustomization()["components"] == ["image"]
    assert kustomization("client")["components"] == ["../image"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_custom_image_is_used_by_every_container_including_the_clients(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, folder)
    file = folder / "image" / "kustomization.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.count("newName: lockgate ") == 1
    file.write_text(text.replace("newName: lockgate ", "newName: registry.example/team/lockgate "), encoding="utf-8")
    made = [parse(_kustomized(item)) for item in (folder, folder / "client")]
    specs = [made_file["spec"]["template"]["spec"] for made_file in made[0] if made_file["kind"] == "StatefulSet"]
    specs += [made_file["spec"] for made_file in made[1] if made_file["kind"] == "Pod"]
    assert len(specs) == 4
    images = [
        container["image"] for spec in specs for container in [*spec.get("initContainers", []), *spec["containers"]]
    ]
    assert set(images) == {"registry.example/team/lockgate:latest"}
    assert {made_file["kind"] for made_file in made[1]} == {"Pod"}


def _kustomized(folder: Path) -> str:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _peers(rule: Document) -> list[str]:
    """The sets that a rule lets in, and `label` for the pods of any namespace that have it."""
    found = []
    for peer in rule["from"]:
        if "namespaceSelector" in peer:
            assert peer["namespaceSelector"] == {}
            ((label, value),) = peer["podSelector"]["matchLabels"].items()
            assert value == "true"
            found.append(label)
        else:
            found += [set_["metadata"]["name"] for set_ in _selected(peer["podSelector"])]
    return found


def _admitted(policy: Document) -> dict[str, set[str]]:
    """Port: who may connect to it, see `_peers`."""
    admitted: dict[str, set[str]] = {}
    for rule in policy["spec"].get("ingress", []):
        for port in rule["ports"]:
            admitted.setdefault(port["port"], set()).update(_peers(rule))
    return admitted


def test_the_network_policy_admits_only_the_required_peers() -> None:
    servers = {"coordinator", "taskmanager"}
    wanted: dict[str, dict[str, set[str]]] = {
        "zookeeper": {"client": servers, "peer": {"zookeeper"}, "election": {"zookeeper"}},
        "coordinator": {"api": servers | set(CLIENT), "metrics": set(SCRAPER)},
        "taskmanager": {"exchange": servers, "metrics": set(SCRAPER)},
    }
    for set_ in SETS:
        name = set_["metadata"]["name"]
        (own,) = [
            document for document in of_kind("NetworkPolicy") if _selected(document["spec"]["podSelector"]) == [set_]
        ]
        assert own["spec"]["policyTypes"] == ["Ingress"]
        assert _admitted(own) == wanted[name]
        assert set(_admitted(own)) == set(_container_ports(set_))
    assert selects({"matchLabels": CLIENT}, client().labels)
    default: Any = documents()["NetworkPolicy/default-deny-ingress"]["spec"]
    assert default == {"podSelector": {}, "policyTypes": ["Ingress"]}


def test_the_steps_of_an_upgrade_apply_each_a_set_of_its_own() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    steps = re.findall(r"^kubectl apply -k docker/kubernetes -l (\S+)=(\S+)$", page, re.M)
    sets = [
        [set_["metadata"]["name"] for set_ in SETS if set_["metadata"]["labels"].get(label) == value]
        for label, value in steps
    ]
    assert sets == [["coordinator"], ["taskmanager"]], "coordinators first"


def test_the_page_names_the_label_and_the_port_of_scrapers() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    ((label, value),) = SCRAPER.items()
    assert f'`{label}: "{value}"`' in page
    _keep, rename = parse(block(page, "yaml", "scrape_configs"))[0]["scrape_configs"][0]["relabel_configs"]
    target = re.sub(r"\$(\d)", r"\\\1", rename["replacement"])
    for pod in [*pods("coordinator"), *pods("taskmanager")]:
        labels = ";".join((pod.labels["app.kubernetes.io/name"], pod.name))
        port = _container_ports(pod.owner)["metrics"]
        assert re.sub(rename["regex"], target, labels) == f"{pod.domain}:{port}"
