"""
Regulators of genes, and which of them are reproducible
=======================================================

A cell switches groups of genes on and off together. Independent components of the expression of all genes find such
groups. :func:`elldict.stability` measures which components are reproduced on other genes.
"""

# %%
# Simulated expression
# --------------------
# 3000 genes in 80 conditions. Each of thirty regulators acts on 10 to 150 genes. Measurements are noisy.

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
# Genes are the samples. For each number of components, random halves of the genes are fitted; a component that is
# similar in both halves is stable. As many components are stable as there are regulators.

path = elldict.stability(
    elldict.LpICA(),
    expression,
    n_components=[10, 20, 30, 40, 50],
    n_splits=4,
    random_state=0,
)
print(path)

# %%
# Are the stable components regulators? With 50 components there are more components than regulators. The genes of a
# component are those whose weights are beyond three robust standard deviations. They are compared with the genes of the
# most similar regulator.

weights_found = (expression - expression.mean(axis=0)) @ path.unmixing[-1].T
stability = path.values[-1]


def score(gene_weights):
    """Compute F1 with the most similar regulator: 1 if exactly its genes were found."""
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
elldict.plot.stability(path, ax=left)
right.scatter(stability, scores, c=np.where(stable, "#4338ca", "#9a9ca6"), s=60, edgecolor="white")
right.axvline(0.9, color="#4338ca", ls="--", lw=1)
right.set(xlabel="stability of a component", ylabel="F1 with a true regulator", xlim=(0, 1.03), ylim=(0, 1.03))
right.set_title(f"{len(stability)} components: stable ones are regulators", weight="bold", loc="left")
right.spines[["top", "right"]].set_visible(False)
plt.show()
