"""docker/kubernetes as Python values, and what kubelet would make of it: pods, their variables and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docker/kubernetes"
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")

Document = dict[str, Any]


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys in silence; the API server refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        repeated = {key for key in keys if keys.count(key) > 1}
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"repeated keys {sorted(repeated)}", node.start_mark)
        return super().construct_mapping(node, deep)


def parse(text: str) -> list[Document]:
    """The documents of a YAML text. Raises yaml.YAMLError, also where a key stands twice."""
    return [document for document in yaml.load_all(text, _UniqueKeys) if document]


def block(page: str, language: str, holding: str = "") -> str:
    """The only code block of a page in this language that holds a text."""
    (found,) = [text for text in re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S) if holding in text]
    return str(found)


def files() -> list[Path]:
    """Every manifest, without the kustomizations."""
    return sorted(path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml")


def kustomization(folder: str = "") -> Document:
    """The kustomization of a folder."""
    (subject,) = parse((FOLDER / folder / "kustomization.yaml").read_text(encoding="utf-8"))
    return subject


@cache
def documents() -> dict[str, Document]:
    """Every object of every manifest, as `Kind/name`."""
    found: dict[str, Document] = {}
    for path in files():
        for item in parse(path.read_text(encoding="utf-8")):
            name = f"{item['kind']}/{item['metadata']['name']}"
            assert name not in found, f"{name} stands twice"
            found[name] = item
    return found


def of_kind(kind: str) -> list[Document]:
    """All objects of a kind."""
    return [document for name, document in documents().items() if name.startswith(f"{kind}/")]


def selects(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a label selector (an empty one selects everything) matches."""
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions), "only In is understood here"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def expand(text: str, variables: dict[str, str]) -> str:
    """`$(NAME)` replaced by a variable's value; one that is not known stays, as with kubelet."""
    return _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), text)


@dataclass(frozen=True)
class Pod:
    """A pod. name: `coordinator-0`; owner: its StatefulSet, or itself; template: where its labels and spec stand."""

    name: str
    owner: Document
    template: Document

    @property
    def role(self) -> str:
        """`coordinator`, say: the name of its StatefulSet, or its own."""
        return str(self.owner["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.owner["metadata"]["namespace"])

    @property
    def domain(self) -> str:
        """Its name in the cluster's name service, up to `.svc`."""
        return f"{self.name}.{self.owner['spec']['serviceName']}.{self.namespace}.svc"

    @property
    def spec(self) -> Document:
        spec: Document = self.template["spec"]
        return spec

    @property
    def labels(self) -> dict[str, str]:
        index = self.name.rpartition("-")[2]
        return {**self.template["metadata"]["labels"], "apps.kubernetes.io/pod-index": index}

    @property
    def container(self) -> Document:
        """Its only container that is not for its start."""
        (only,) = self.spec["containers"]
        container: Document = only
        return container

    @property
    def containers(self) -> list[Document]:
        """All, those for its start first."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def claims(self) -> list[Document]:
        """The volume claims that are made for it."""
        claims: list[Document] = self.owner["spec"].get("volumeClaimTemplates", [])
        return claims

    def variables(self) -> dict[str, str]:
        """The container's environment, made in the order of the manifest, as kubelet does."""
        made: dict[str, str] = {}
        for item in self.container.get("env", []):
            value = item["value"] if "value" in item else self._field(item["valueFrom"]["fieldRef"]["fieldPath"])
            made[item["name"]] = expand(value, made)
        return made

    def arguments(self) -> list[str]:
        """What the container runs, `lockgate` first."""
        return [expand(argument, self.variables()) for argument in self.container["args"]]

    def mounts(self) -> dict[str, Document]:
        """Mount path: the volume behind it."""
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        volumes |= {claim["metadata"]["name"]: claim for claim in self.claims}
        return {
            volume_mount["mountPath"]: volumes[volume_mount["name"]] for volume_mount in self.container["volumeMounts"]
        }

    def secret_keys(self) -> dict[str, set[str]]:
        """Name of a secret: its keys that the volume `secret` holds; those that need not exist, too."""
        (volume,) = [volume for volume in self.spec["volumes"] if volume["name"] == "secret"]
        if "secret" in volume:
            return {volume["secret"]["secretName"]: {"secret"}}
        sources = [source["secret"] for source in volume["projected"]["sources"]]
        return {source["name"]: {item["key"] for item in source["items"]} for source in sources}

    def _field(self, path: str) -> str:
        label = _LABEL.fullmatch(path)
        if label:
            return self.labels[label[1]]
        return {"metadata.name": self.name, "metadata.namespace": self.namespace}[path]


def pods(role: str = "") -> list[Pod]:
    """The pods of all StatefulSets, or those of one."""
    return [pod for set_ in of_kind("StatefulSet") if role in ("", set_["metadata"]["name"]) for pod in _pods_of(set_)]


def client() -> Pod:
    """The pod to give commands from."""
    pod = documents()["Pod/client"]
    return Pod("client", pod, pod)


def _pods_of(set_: Document) -> Iterator[Pod]:
    spec = set_["spec"]
    first = spec.get("ordinals", {}).get("start", 0)
    for ordinal in range(first, first + spec["replicas"]):
        yield Pod(f"{set_['metadata']['name']}-{ordinal}", set_, spec["template"])


def settings_text() -> str:
    """The settings file that the pods see."""
    return str(documents()["ConfigMap/lockgate-settings"]["data"]["lockgate.toml"])
