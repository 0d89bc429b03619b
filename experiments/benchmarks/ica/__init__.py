"""elldict beside scikit-learn's FastICA, on sources of any law."""
