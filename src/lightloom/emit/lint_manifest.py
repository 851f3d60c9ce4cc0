"""Rules of Kubernetes manifests: the CRDs' own schemas, and what schedulers want beyond them."""

from __future__ import annotations

import re
from typing import Any

from lightloom.core.errors import nearest
from lightloom.core.finding import Finding, Severity

from .facts import load, origin_line
from .positions import Path, Positions

CRDS = ("trainjob", "jobset", "volcano-job", "podgroup", "hypernode", "kueue-topology",
        "kueue-flavor", "kueue-clusterqueue", "kueue-localqueue")  # fmt: skip
META = {"apiVersion", "kind", "metadata", "status"}
META_FIELDS = {
    "name", "generateName", "namespace", "labels", "annotations", "finalizers",
    "ownerReferences", "creationTimestamp", "uid", "resourceVersion", "generation",
    "managedFields", "deletionTimestamp", "selfLink", "deletionGracePeriodSeconds",
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SECRET = re.compile(r"(PASSWORD|SECRET|TOKEN|API_?KEY|CREDENTIAL)", re.I)
RESOURCES = re.compile(r"(nvidia\.com/gpu|amd\.com/gpu|huawei\.com/|google\.com/tpu)")


class Checker:
    """Collects findings about one document."""

    def __init__(self, name: str, doc: Positions) -> None:
        """Check `doc` of file `name`."""
        self.name, self.doc = name, doc
        self.findings: list[Finding] = []

    def say(self, code: str, what: str, path: Path, remedy: str = "",
            severity: Severity = "error") -> None:  # fmt: skip
        """Add a finding at the line of `path`."""
        where = ".".join(str(p) for p in path)
        self.findings.append(Finding(
            severity=severity, code=code, subject=f"{self.name}:{self.doc.line(*path)}",
            what=f"{where}: {what}" if where else what, remedy=remedy,
        ))  # fmt: skip

    def schema(self, value: Any, rule: Any, path: Path) -> None:
        """Compare a value with a pruned CRD schema; unknown fields are errors."""
        if rule is True or value is None:
            return
        kind = rule.get("type")
        if kind == "object":
            self.object(value, rule, path)
        elif kind == "array":
            if not isinstance(value, list):
                self.say("type", f"{value!r} is not a list", path)
                return
            for i, item in enumerate(value):
                self.schema(item, rule.get("items", True), (*path, i))
        else:
            self.scalar(value, rule, path)

    def object(self, value: Any, rule: Any, path: Path) -> None:
        """Compare an object."""
        if not isinstance(value, dict):
            self.say("type", f"{value!r} is not an object", path)
            return
        fields = rule.get("properties")
        for key in rule.get("required", []):
            if key not in value:
                self.say("required", f"{key} is missing", path)
        for key, item in value.items():
            if fields and key in fields:
                self.schema(item, fields[key], (*path, key))
            elif "values" in rule:
                self.schema(item, rule["values"], (*path, key))
            elif fields and not rule.get("open"):
                self.say("unknown-field", f"no such field{nearest(key, fields)}", (*path, key))

    def scalar(self, value: Any, rule: Any, path: Path) -> None:
        """Compare a number, a string or a boolean."""
        kind = rule.get("type")
        good = {
            "string": isinstance(value, str), "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, int | float) and not isinstance(value, bool),
            "int-or-string": isinstance(value, int | str) and not isinstance(value, bool),
        }.get(str(kind), True)  # fmt: skip
        if not good:
            self.say("type", f"{value!r} is not {kind}", path)
        elif "enum" in rule and value not in rule["enum"]:
            self.say("enum", f"{value!r}: one of {', '.join(map(str, rule['enum']))}", path)
        elif "minimum" in rule and value < rule["minimum"]:
            self.say("minimum", f"{value} is below {rule['minimum']}", path)
        elif "maximum" in rule and value > rule["maximum"]:
            self.say("maximum", f"{value} is above {rule['maximum']}", path)
        elif "pattern" in rule and isinstance(value, str) and not matches(rule["pattern"], value):
            self.say("pattern", f"{value!r} does not match {rule['pattern']}", path)


def matches(pattern: str, value: str) -> bool:
    """Return whether a CRD pattern matches; a pattern that Python cannot read says yes."""
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def crd_of(api: str, kind: str) -> dict[str, Any] | None:
    """Return the CRD of a document, None for a kind that is not one of ours."""
    group = api.partition("/")[0]
    for name in CRDS:
        crd = load(f"crd-{name}")
        if crd["group"] == group and crd["kind"] == kind:
            return {**crd, "list": f"crd-{name}"}
    return None


def check(name: str, doc: Positions) -> list[Finding]:
    """Return findings about one document."""
    checker = Checker(name, doc)
    value = doc.value
    if not isinstance(value, dict):
        checker.say("not-an-object", "a manifest is an object", ())
        return checker.findings
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str):
            checker.say("required", f"{key} is missing", ())
            return checker.findings
    check_meta(checker, value)
    api, kind = value["apiVersion"], value["kind"]
    crd = crd_of(api, kind)
    if crd:
        check_crd(checker, value, crd)
    check_pods(checker, value, kind)
    check_scheduling(checker, value)
    return checker.findings


def check_meta(checker: Checker, value: dict[str, Any]) -> None:
    """Check name and metadata."""
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        checker.say("required", "metadata is missing", ())
        return
    for key in meta:
        if key not in META_FIELDS:
            checker.say("unknown-field", f"no such field{nearest(key, META_FIELDS)}",
                        ("metadata", key))  # fmt: skip
    label = meta.get("name")
    if label is None and "generateName" not in meta:
        checker.say("required", "name is missing", ("metadata",))
    elif label is not None and (not _NAME.fullmatch(str(label)) or len(str(label)) > 63):
        checker.say("name", f"{label!r} is not a DNS-1123 name of at most 63 characters",
                    ("metadata", "name"))  # fmt: skip
    for key in ("labels", "annotations"):
        for k, v in mapped(meta, key).items():
            if not isinstance(v, str):
                checker.say("type", f"{v!r} is not a string", ("metadata", key, k), f'"{v}"')


def check_crd(checker: Checker, value: dict[str, Any], crd: dict[str, Any]) -> None:
    """Check against the custom resource's schema."""
    version = value["apiVersion"].partition("/")[2]
    if version not in crd["versions"]:
        what = f"{value['apiVersion']} is not served: {', '.join(crd['versions'])}"
        checker.say("version", what, ("apiVersion",), origin_line(crd["list"]))
        return
    fields = crd["versions"][version]["properties"]
    for key, item in value.items():
        if key in META:
            continue
        if key not in fields:
            checker.say("unknown-field", f"no such field{nearest(key, fields)}", (key,))
        else:
            checker.schema(item, fields[key], (key,))


def walk(value: Any, path: Path = ()) -> list[tuple[Path, dict[str, Any]]]:
    """Return every object of a document with its path."""
    out: list[tuple[Path, dict[str, Any]]] = []
    if isinstance(value, dict):
        out.append((path, value))
        for key, item in value.items():
            out += walk(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            out += walk(item, (*path, i))
    return out


def check_pods(checker: Checker, value: dict[str, Any], kind: str) -> None:
    """Check containers: names, equal requests and limits of cards, no secret in the open."""
    for path, item in walk(value):
        if isinstance(item.get("containers"), list):
            check_volumes(checker, item, path)
            for i, box in enumerate(item["containers"]):
                if isinstance(box, dict):
                    check_container(checker, box, (*path, "containers", i))
        secret = "value" in item and _SECRET.search(str(item.get("name", "")))
        if secret and item["value"] and not str(item["value"]).startswith(("$", "/")):
            what = f"{item['name']} is written in the open"
            checker.say("secret", what, (*path, "value"), "valueFrom.secretKeyRef")
    if kind == "AscendJob":
        names = {str(b.get("name")) for _, i in walk(value) for b in listed(i, "containers")}
        if "ascend" not in names:
            checker.say("ascend-container", "the container of an AscendJob must be named ascend",
                        ("spec",))  # fmt: skip


def listed(holder: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects of a list; nothing where the file holds something else there."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return [v if isinstance(v, dict) else {} for v in value] if isinstance(value, list) else []


def mapped(holder: Any, key: str) -> dict[str, Any]:
    """Return the object under a key; empty where the file holds something else there."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def check_container(checker: Checker, box: dict[str, Any], path: Path) -> None:
    """Check the resources of one container."""
    resources = mapped(box, "resources")
    limits, requests = mapped(resources, "limits"), mapped(resources, "requests")
    for key, count in limits.items():
        if RESOURCES.match(str(key)) and key in requests and requests[key] != count:
            what = f"{key}: request {requests[key]} is not the limit {count}"
            where = (*path, "resources", "requests", key)
            checker.say("cards", what, where, "cards cannot be overcommitted")
    for key in requests:
        if RESOURCES.match(str(key)) and key not in limits:
            checker.say("cards", f"{key} is requested without a limit",
                        (*path, "resources", "requests", key))  # fmt: skip


def check_volumes(checker: Checker, pod: dict[str, Any], path: Path) -> None:
    """Check that every mount has its volume."""
    names = {str(v.get("name")) for v in listed(pod, "volumes")}
    for i, box in enumerate(listed(pod, "containers")):
        for k, mount in enumerate(listed(box, "volumeMounts")):
            if str(mount.get("name")) not in names:
                where = (*path, "containers", i, "volumeMounts", k, "name")
                checker.say("volume", f"{mount.get('name')!r} is not in volumes", where)


def check_scheduling(checker: Checker, value: dict[str, Any]) -> None:
    """Check gang size, restart rules, and MindCluster's annotations."""
    spec = value.get("spec") if isinstance(value.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    tasks = spec.get("tasks")
    if isinstance(tasks, list) and isinstance(spec.get("minAvailable"), int):
        counts = [t.get("replicas", 1) for t in tasks if isinstance(t, dict)]
        total = sum(n for n in counts if isinstance(n, int))
        if spec["minAvailable"] > total:
            checker.say("gang", f"{spec['minAvailable']} is more than the {total} replicas",
                        ("spec", "minAvailable"))  # fmt: skip
        elif spec["minAvailable"] < total:
            checker.say("gang", f"{spec['minAvailable']} of {total}: a part of the ranks may start"
                        " and wait", ("spec", "minAvailable"), severity="warning")  # fmt: skip
    for path, item in walk(value):
        both = ("completions", "parallelism")
        if all(isinstance(item.get(k), int) for k in both) and item[both[0]] != item[both[1]]:
            checker.say("gang", f"parallelism {item[both[1]]} is not completions {item[both[0]]}",
                        (*path, "parallelism"))  # fmt: skip
    check_superpod(checker, value)


def check_superpod(checker: Checker, value: dict[str, Any]) -> None:
    """Check ``sp-block``: whole hosts, and a divisor of the job."""
    marks = mapped(mapped(value, "metadata"), "annotations")
    if "sp-block" not in marks:
        return
    path = ("metadata", "annotations", "sp-block")
    text = str(marks["sp-block"])
    if not text.isdigit() or int(text) < 1:
        checker.say("sp-block", f"{text!r} is not a number of cards", path)
        return
    per = [int(c) for _, item in walk(value) for k, c in mapped(item, "limits").items()
           if RESOURCES.match(str(k)) and str(c).isdigit()]  # fmt: skip
    hosts = [item[k] for _, item in walk(value) for k in ("replicas", "numNodes", "completions")
             if isinstance(item.get(k), int)]  # fmt: skip
    if per and int(text) % per[0]:
        checker.say("sp-block", f"{text} is not a multiple of {per[0]} cards a host", path)
    elif per and hosts and (max(hosts) * per[0]) % int(text):
        checker.say("sp-block", f"{text} does not divide the job's {max(hosts) * per[0]} cards",
                    path)  # fmt: skip
