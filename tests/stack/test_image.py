"""The image of deploy/Dockerfile, built by buildah and started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_programs import binary

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/debian:bookworm-slim"
pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="debootstrap makes a base image as root"),
    pytest.mark.timeout(1200),
]


class Builder:
    """buildah with a storage of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.environ = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
        self.storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def __call__(self, *words, fails=False):
        command = [binary("buildah"), *self.storage, *map(str, words)]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=1000, cwd=ROOT)
        assert (done.returncode != 0) is fails, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip() + done.stderr * fails

    def base(self):
        """Makes the base image."""
        root = self.folder / "debian"
        command = [binary("debootstrap"), "--variant=minbase", "bookworm", root, "http://deb.debian.org/debian"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1000)
        assert done.returncode == 0, done.stdout[-3000:]
        archive = self.folder / "debian.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        container = self("from", "scratch")
        self("add", container, archive, "/")
        self("commit", container, BASE)
        self("rm", container)
        shutil.rmtree(root)
        archive.unlink()

    def lent(self):
        """Options by which pip finds within the build what it finds here."""
        listed = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
        ).stdout
        names = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
        wanted = {"cert", "index-url", "extra-index-url", "find-links", "trusted-host"}
        own = {name.rpartition(".")[2]: value.strip("'").replace("\\n", " ") for name, value in names.items()}
        found = {name: value for name, value in own.items() if name in wanted}
        conf, lent = self.folder / "pip.conf", [f"{self.folder / 'pip.conf'}:/etc/pip.conf:ro"]
        if "cert" in found:
            lent.append(f"{found['cert']}:/run/ca.crt:ro")
            found["cert"] = "/run/ca.crt"
        # The pages of an index name files beside it.
        places = [word.removeprefix("file://") for word in found.get("find-links", "").split()]
        indexes = [word for name in ("index-url", "extra-index-url") for word in found.get(name, "").split()]
        places += [str(Path(word.removeprefix("file://")).parent) for word in indexes if word.startswith("file://")]
        lent += [f"{place}:{place}:ro" for place in places if Path(place).is_absolute() and Path(place).is_dir()]
        conf.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in found.items()))
        return [word for mount in lent for word in ("--volume", mount)]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A container of the image, and what runs a command in it."""
    folder = tmp_path_factory.mktemp("image")
    builder = Builder(folder)
    try:
        builder.base()
        builder("build", "--pull-never", *builder.lent(), "-f", "deploy/Dockerfile", "-t", "mindspore-asd", ".")
        container = builder("from", "--pull-never", "localhost/mindspore-asd")
        yield lambda *words, **options: builder("run", container, "--", *words, **options)
    finally:
        builder("rm", "--all")
        shutil.rmtree(folder, ignore_errors=True)


def test_the_image_runs_agent_and_handler_as_nobody_in_particular(image):
    assert image("id", "-u") == "65532"
    assert image("asd", "--version").startswith("asd ")
    for command in ("exporter", "handler", "devices", "events"):
        assert image("asd", command, "--help").startswith(f"usage: asd {command}")


def test_it_can_do_what_the_manifests_ask_of_it(image):
    image("python3", "-c", "import lightkube, yaml, asd.exporters.http.server")
    options = "--run-dir /tmp --state /tmp/s.sqlite --isolator kubernetes --once"
    told = image("asd", "handler", *options.split(), fails=True)
    assert "kubeconfig" in told  # it looked for one, so lightkube is there


def test_it_has_no_mindspore_no_compiler_and_no_pip(image):
    assert "No module named 'mindspore'" in image("python3", "-c", "import mindspore", fails=True)
    for program in ("cc", "g++", "pip"):
        image("sh", "-c", f"command -v {program}", fails=True)
