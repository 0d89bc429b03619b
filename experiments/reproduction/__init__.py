"""The paper, reproduced: what to run, the runner, the store, and the report.."""
