"""`asd exporter`: its options, and a wrong one ending in one sentence."""

import pytest

from asd.cli import main
from asd.exporters.http.routes import start_server


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "65536"], "--port has the value '65536', which is not valid: it must be a whole number from 0 to"),
        (["--checkpoints", "all"], "--checkpoints has the value 'all'"),
        (["--device-map", "nothing.json"], "--device-map has the value 'nothing.json'"),
        (
            ["--web-config", "nothing.yml"],
            "'nothing.yml', which is not valid: it can't be read: No such file or directory",
        ),
        (["--address", "192.0.2.1"], "'192.0.2.1:9464', which is not valid: the address is none of this machine's"),
        (["run1"], "run1"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_code_2(arguments, said, capsys):
    assert main(["exporter", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:5]) == ("", 1, "asd: ")
    assert said in err


def test_a_port_in_use_is_one_sentence_that_names_it(capsys):
    server = start_server(registry=None, ledger_events=list, ready=str, port=0)
    try:
        assert main(["exporter", "--port", str(server.port)]) == 2
    finally:
        server.close()
    assert capsys.readouterr().err == (
        f"asd: the address to serve metrics on has the value '127.0.0.1:{server.port}', which is not valid: the "
        "port is in use by another program; valid is a free one, or 0 to have one picked.\n"
    )
