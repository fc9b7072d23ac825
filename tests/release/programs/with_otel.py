"""The extra `otel`: a commit has spans of the program's own tracer."""

import opentelemetry.exporter.otlp.proto.http.trace_exporter
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rootline

assert opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter
spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
with rootline.connect("./lake") as lake:
    lake.create_table("demo.trips", {"id": "long"}).append([{"id": 1}])
names = {span.name for span in spans.get_finished_spans()}
assert {"rootline publish", "rootline put root"} <= names, names
