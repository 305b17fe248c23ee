"""What every domain stands on: database, telemetry, problem details; it knows no domain."""
