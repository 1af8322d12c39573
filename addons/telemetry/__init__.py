"""Telemetry: traces and metrics, sent by OpenTelemetry."""
