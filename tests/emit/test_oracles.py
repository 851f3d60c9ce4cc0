"""Other people's checkers on our files: kubernetes-validate and Kubeflow's own models."""

from __future__ import annotations

import warnings

import plans
import yaml

from lightloom.emit.targets import emit


def documents(target: str, cluster: str, path: str) -> list[dict[str, object]]:
    framework = "mindspeed" if cluster in ("supernode-8192", "atlas-900-a3") else "megatron"
    bundle = emit(plans.plan("deepseek-v3", cluster, framework), target)
    text = next(f.text for f in bundle.files if f.path == path)
    return list(yaml.safe_load_all(text))


def test_built_in_kinds_pass_kubernetes_validate() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    for cluster in ("dgx-h100", "atlas-900-a3"):
        for doc in documents("kubernetes", cluster, "jobset.yaml"):
            if doc["kind"] == "ConfigMap":
                kubernetes_validate.validate(doc, "1.33", strict=True)
            else:
                job = doc["spec"]["replicatedJobs"][0]["template"]  # type: ignore[index]
                built = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job}
                kubernetes_validate.validate(built, "1.33", strict=True)


def test_volcano_pods_pass_kubernetes_validate() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    _, job = documents("volcano", "supernode-8192", "volcano.yaml")
    pod = job["spec"]["tasks"][0]["template"]["spec"]  # type: ignore[index]
    built = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
    kubernetes_validate.validate(built, "1.33", strict=True)


def test_trainjob_survives_kubeflows_own_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
    job = documents("kubernetes", "dgx-h100", "trainjob.yaml")[1]
    model = TrainerV1alpha1TrainJob.from_dict(job)
    assert model is not None
    assert model.to_dict() == job
