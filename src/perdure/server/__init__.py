"""HTTP and SSE over an engine: parse, call a service, render. No rules live here."""
