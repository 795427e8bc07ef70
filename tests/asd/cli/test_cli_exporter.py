"""`asd exporter`: its options, and a wrong one ending in one sentence."""

from asd.cli import main
from asd.exporters.http.routes import start_server


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
