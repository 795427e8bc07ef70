"""Writes the alert rules as a PrometheusRule: python deploy/make_rules.py; a test compares the two."""

import textwrap
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent / "exporters" / "alerts" / "asd_rules.yml"
TARGET = HERE / "kubernetes" / "monitoring" / "rules.yaml"

HEAD = """\
# Made by deploy/make_rules.py of exporters/alerts/asd_rules.yml; docs/alerts.md is the runbook.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: asd
  namespace: asd
spec:
"""


def rules() -> str:
    """The text of the object."""
    text = SOURCE.read_text(encoding="utf-8")
    return HEAD + textwrap.indent(text[text.index("groups:") :], "  ")


if __name__ == "__main__":
    TARGET.write_text(rules(), encoding="utf-8")
