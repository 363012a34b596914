"""Holds Kubernetes objects against the published schemas, and gives what they say of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import kubernetes_validate
import yaml

VERSION = "1.35"
CUSTOM = frozenset({"monitoring.coreos.com/v1", "ray.io/v1"})
"""Of the Prometheus operator and KubeRay: their schemas are not among those of Kubernetes."""


def objects(text: str) -> list[dict[str, Any]]:
    """The documents of a manifest; a key that stands twice in one of them is an error."""
    return [document for document in yaml.load_all(text, Loader=_Once) if document]


def validate(document: Mapping[str, Any]) -> None:
    """Raises ``kubernetes_validate.ValidationError`` for an object that Kubernetes would refuse, or an unknown key."""
    if document["apiVersion"] not in CUSTOM:
        kubernetes_validate.validate(document, VERSION, strict=True)


def pod_specs(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The specs of all pods."""
    for document in documents:
        if document["kind"] in {"Deployment", "Job"}:
            yield document["spec"]["template"]["spec"]


def watchers(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The watcher's containers."""
    for spec in pod_specs(documents):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            if container["name"] == "grpo-watch":
                yield container


def assert_closed(container: Mapping[str, Any], user: int) -> None:
    """What the restricted pod security standard asks of a container, and a root that can't be written."""
    security = container["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == user
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def assert_mounted(spec: Mapping[str, Any], container: Mapping[str, Any]) -> None:
    """Every mount is of a volume of the pod; the runs can only be read, the state can be written."""
    volumes = {volume["name"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} <= volumes
    assert [path for path, mount in mounts.items() if not mount.get("readOnly")] == ["/state"]


class _Once(yaml.SafeLoader):
    """Refuses a mapping in which a key stands twice, of which Kubernetes would take one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]  # type: ignore[no-untyped-call]
        assert len(keys) == len(set(keys)), keys
        return dict(super().construct_mapping(node, deep=deep))
