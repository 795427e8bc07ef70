"""The shipped manifests, by kubectl and Helm themselves."""

import subprocess

import pytest
from real_programs import binary

import asd
from tests.support.manifests import FOLDER, components, rendered

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.stack
CHART = FOLDER.parent / "helm" / "mindspore-asd"


def output(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def by_name(objects):
    return {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in objects}


def kustomized(folder, *names):
    """What kubectl makes of the base with components."""
    for name in ("base", *names):
        (folder / name).symlink_to(FOLDER / name)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["base"], "components": list(names)}))
    return by_name(output(binary("kubectl"), "kustomize", "--load-restrictor=LoadRestrictionsNone", folder))


def charted(**values):
    """What Helm makes of the chart."""
    settings = [word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
    return by_name(output(binary("helm"), "template", "asd", CHART, "--namespace", "asd", *settings))


def test_what_is_applied_is_what_the_other_tests_look_at():
    assert by_name(output(binary("kubectl"), "kustomize", FOLDER)) == by_name(rendered(*components()))


@pytest.mark.parametrize(
    ("names", "values"),
    [
        ([], {}),
        (["in-earnest"], {"handler__dryRun": "false"}),
        (["monitoring"], {"monitoring": "true"}),
        (["tls"], {"tls": "true"}),
        (["mindcluster"], {"handler__isolator": "clusterd"}),
        (
            ["in-earnest", "monitoring", "tls", "mindcluster"],
            {"handler__dryRun": "false", "monitoring": "true", "tls": "true", "handler__isolator": "clusterd"},
        ),
    ],
    ids=lambda each: "-".join(each) or "base",
)
def test_the_chart_is_the_kustomization(tmp_path, names, values):
    made = kustomized(tmp_path, *names)
    assert made == by_name(rendered("base", *names))
    del made[("Namespace", None, "asd")]  # Helm's own matter
    assert charted(**values) == made


def test_the_chart_puts_its_values_in():
    made = charted(
        image="registry.example/asd:1",
        handler__dryRun="false",
        handler__args="{--max-devices=4}",
        agent__args="{--checkpoints=5}",
        monitoring="true",
        monitoringLabels__release="kube",
        monitoringNamespace="observed",
    )
    agent, handler = made[("DaemonSet", "asd", "asd-agent")], made[("Deployment", "asd", "asd-handler")]
    (container,) = handler["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/asd:1"
    assert "--dry-run" not in container["args"]
    assert container["args"][-1] == "--max-devices=4"
    assert agent["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--checkpoints=5"
    assert [each["metadata"].get("labels") for each in made.values()].count({"release": "kube"}) == 3
    assert str(made).count("{'kubernetes.io/metadata.name': 'observed'}") == 2


@pytest.mark.parametrize(("part", "name"), [("handler", ("Deployment", "asd")), ("agent", ("DaemonSet", "asd"))])
def test_the_chart_says_where_a_part_runs_with_how_much_and_how_its_image_is_pulled(part, name):
    usual = charted()[(*name, f"asd-{part}")]["spec"]["template"]["spec"]
    made = charted(
        **{
            "imagePullSecrets[0]__name": "registry",
            f"{part}__tolerations[0]__key": "npu",
            f"{part}__nodeSelector__accelerator": "huawei",
            f"{part}__resources__limits__memory": "1Gi",
        }
    )
    (other,) = [each for key, each in made.items() if key[0] in ("Deployment", "DaemonSet") and key[2] != f"asd-{part}"]
    assert other["spec"]["template"]["spec"].keys() & {"nodeSelector", "imagePullSecrets"} == {"imagePullSecrets"}
    pod = made[(*name, f"asd-{part}")]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [*usual["tolerations"], {"key": "npu"}]  # none of its own is lost
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"accelerator": "huawei"}, [{"name": "registry"}])
    assert pod["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}


def test_the_chart_goes_into_another_namespace():
    made = by_name(output(binary("helm"), "template", "asd", CHART, "--namespace", "guard", "--set", "tls=true"))
    assert {space for _, space, _ in made} == {"guard", "default", None}
    (container,) = made[("Deployment", "guard", "asd-handler")]["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "--agents=kubernetes:guard/app.kubernetes.io/name=asd-agent:9464"
    assert container["args"][1] == "--lease=guard/asd-handler"
    bindings = [each for (kind, *_), each in made.items() if kind.endswith("RoleBinding")]
    assert {subject["namespace"] for each in bindings for subject in each["subjects"]} == {"guard"}


def test_the_handler_may_list_pods_only_where_agents_and_jobs_are():
    made = charted(jobNamespaces="{training,lab}")
    (container,) = made[("Deployment", "asd", "asd-handler")]["spec"]["template"]["spec"]["containers"]
    assert "--jobs=kubernetes:asd.mindspore.org/run@asd,training,lab" in container["args"]
    found = {name[:2] for name, each in made.items() for rule in each.get("rules", ()) if "pods" in rule["resources"]}
    assert found == {("Role", space) for space in ("asd", "training", "lab")}
    bound = made[("RoleBinding", "lab", "asd-handler-jobs")]
    assert bound["subjects"] == made[("RoleBinding", "asd", "asd-handler")]["subjects"]


def test_a_wrong_value_is_refused_in_a_sentence():
    command = [binary("helm"), "template", "asd", CHART, "--set", "handler.isolator=slurm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert 'handler.isolator is "slurm"; valid are kubernetes, clusterd and none' in done.stderr


def test_the_chart_of_a_release_is_that_of_the_checkout_and_has_nothing_to_complain_of():
    subprocess.run(["make", "--silent", "chart"], cwd=FOLDER.parents[1], check=True)
    packed = FOLDER.parents[1] / "dist" / f"mindspore-asd-{asd.__version__}-chart.tgz"
    done = subprocess.run([binary("helm"), "lint", "--strict", packed], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert by_name(output(binary("helm"), "template", "asd", packed, "--namespace", "asd")) == charted()
