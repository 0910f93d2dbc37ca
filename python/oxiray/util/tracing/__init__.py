"""Calls as spans of OpenTelemetry: hooks for `init(_tracing_startup_hook=...)`, which install a tracer provider in each process."""
