"""Pages about fitted models and the demo: self-contained HTML. Needs the extra ``plot``."""
