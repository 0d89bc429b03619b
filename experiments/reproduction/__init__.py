"""The paper, reproduced: its experiments, a runner that stores results, and a report."""
