"""elldict beside FastICA and Picard on real data, by the likelihood of held-out samples."""
