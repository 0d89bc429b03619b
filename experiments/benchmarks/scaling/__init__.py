"""The cost model of docs/scaling.md."""
