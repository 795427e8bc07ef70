"""Events and metrics in the form of OpenTelemetry, to a site's collector over HTTP.

    records   ── what an event and a metric become
    sink      ── from a training itself
    outlet    ── from the agent of a node

Headers, certificates, compression and time-outs are those of OpenTelemetry's own variables, `OTEL_EXPORTER_OTLP_...`.

May import: nothing of `asd.exporters`.
"""
