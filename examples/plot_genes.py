"""
Regulators of genes, and which of them to believe
=================================================

A cell switches groups of genes on and off together. From expression alone, independent components find such groups; the
usual way is a hundred restarts and a clustering of what they return. Here one call, :func:`elldict.stability`, says
which components other genes would give again.
"""

# %%
# A simulated organism
# --------------------
# 3000 genes in 80 conditions. Thirty regulators act on 10 to 150 genes each, some of them weakly; which genes, only the
# simulation knows. Measurements are noisy.

import matplotlib.pyplot as plt
import numpy as np

import elldict

rng = np.random.default_rng(3)
N_GENES, N_CONDITIONS, N_REGULATORS = 3000, 80, 30

sizes = np.geomspace(150, 10, N_REGULATORS).astype(int)
acts_on = np.zeros((N_GENES, N_REGULATORS), bool)
for regulator, size in enumerate(sizes):
    acts_on[rng.choice(N_GENES, size, replace=False), regulator] = True
weights = acts_on * rng.normal(1.0, 0.3, acts_on.shape) * rng.choice([-1, 1], acts_on.shape, p=[0.15, 0.85])
activity = rng.normal(size=(N_REGULATORS, N_CONDITIONS))
expression = weights @ activity + 0.35 * rng.normal(size=(N_GENES, N_CONDITIONS))

# %%
# How many components, and which
# ------------------------------
# Genes are the samples. Each number of components is fitted to random halves of the genes; a component that both halves
# have is stable.

path = elldict.stability(
    elldict.LpICA(random_state=0),
    expression,
    n_components=[10, 20, 30, 40, 50],
    n_splits=4,
    random_state=0,
)
print(path)

# %%
# Are the stable ones true? Take the largest number, with more components than there are regulators. The genes of a
# component are those whose weights are beyond three robust standard deviations. They are compared with the genes of the
# regulator that they share most with.

weights_found = (expression - expression.mean(axis=0)) @ path.unmixing[-1].T
stability = path.values[-1]


def score(gene_weights):
    """F1 with the best regulator: 1 if exactly its genes were found."""
    centred = gene_weights - np.median(gene_weights)
    members = np.abs(centred) > 3 * 1.4826 * np.median(np.abs(centred))
    shared = (members[:, None] & acts_on).sum(axis=0)
    return np.max(2 * shared / (members.sum() + acts_on.sum(axis=0)))


scores = np.array([score(column) for column in weights_found.T])
stable = stability >= 0.9
print(f"{stable.sum()} stable components: mean F1 {scores[stable].mean():.2f}")
print(f"{np.sum(~stable)} others: mean F1 {scores[~stable].mean():.2f}")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8), layout="constrained")
path.plot(ax=left)
right.scatter(stability, scores, c=np.where(stable, "#4338ca", "#9a9ca6"), s=60, edgecolor="white")
right.axvline(0.9, color="#4338ca", ls="--", lw=1)
right.set(xlabel="stability of a component", ylabel="F1 with a true regulator", xlim=(0, 1.03), ylim=(0, 1.03))
right.set_title(f"{len(stability)} components: the stable ones are true", weight="bold", loc="left")
right.spines[["top", "right"]].set_visible(False)
plt.show()
