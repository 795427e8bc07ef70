"""Making isolators by name: what is there, which options each has, and what is said about wrong ones."""

import subprocess
import sys

import pytest

from asd.errors import ConfigError
from asd.exporters.isolators import make_isolator


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("slrum", {}, "'slrum'.* none, hostfile, slurm, kubernetes, clusterd"),
        ("slurm", {"timeout": "soon"}, "the option timeout"),
        ("slurm", {"timeout": 0}, "the option timeout has the value 0,"),
        ("slurm", {"timeout": True}, "the option timeout has the value True"),
        ("slurm", {"scontrol": "a b"}, "the option scontrol"),
        ("slurm", {"conf": "a\nb"}, "the option conf"),
        ("hostfile", {}, "the option hosts has the value ''"),
        ("hostfile", {"hosts": "a", "hosts_out": "a"}, "a file of its own"),
        ("hostfile", {"hosts": "/"}, "a file of its own"),
        ("clusterd", {"transport": "grpc"}, "the option transport .* 'grpc'"),
        ("clusterd", {"namespace": "Not This"}, "the option namespace"),
    ],
)
def test_a_wrong_name_option_or_value_is_refused_in_one_sentence(name, options, said):
    with pytest.raises(ConfigError, match=said):
        make_isolator(name, **options)


@pytest.mark.parametrize("name", ["kubernetes", "clusterd"])
@pytest.mark.parametrize("text", [None, "", "no: clusters", "{", "\x00", "clusters: 7\nusers: []\ncontexts: x\n"])
def test_a_kubeconfig_that_is_none_is_refused_in_one_sentence(tmp_path, name, text):
    pytest.importorskip("lightkube")
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match="the option kubeconfig") as caught:
        make_isolator(name, kubeconfig=str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path):
    code = "import sys; sys.modules['lightkube'] = None; from asd.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["handler", "--isolator", "kubernetes", "--run-dir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n"), "k8s" in done.stderr) == (1, 1, True)


def test_making_one_loads_no_client_of_another():
    code = (
        "import sys; from asd.exporters.isolators import make_isolator\n"
        "make_isolator('slurm'); make_isolator('hostfile', hosts='x')\n"
        "print({'lightkube', 'numpy', 'mindspore'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
