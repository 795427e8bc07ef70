"""The manifests of deploy/kubernetes after the components; tests/stack compares them with what kubectl makes."""

import copy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"


def _items(text):
    import yaml

    return list(yaml.safe_load_all(text))


def components():
    """The folders that the kustomization names, the base first."""
    (top,) = _items((FOLDER / "kustomization.yaml").read_text())
    return [*top["resources"], *(top["components"] or [])]


def rendered(*folders):
    """The objects of the base and of components, patched by these."""
    objects = []
    for folder in folders:
        (own,) = _items((FOLDER / folder / "kustomization.yaml").read_text())
        for name in own.get("resources", []):
            objects += _items((FOLDER / folder / name).read_text())
        for patch in own.get("patches", []):
            for each in objects:
                if (each["kind"], each["metadata"]["name"]) == (patch["target"]["kind"], patch["target"]["name"]):
                    _apply(each, *_items(patch["patch"]))
    return objects


def _apply(target, operations):
    """RFC 6902, as far as it is needed here."""
    for operation in operations:
        *way, last = (step.replace("~1", "/") for step in operation["path"].strip("/").split("/"))
        place = target
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        key = int(last) if isinstance(place, list) and last != "-" else last
        value = copy.deepcopy(operation.get("value"))
        if operation["op"] == "test":
            assert place[key] == value, operation
        elif operation["op"] == "remove":
            del place[key]
        elif key == "-":
            place.append(value)
        else:
            assert isinstance(place, list) or (key in place) is (operation["op"] == "replace"), operation
            place[key] = value
