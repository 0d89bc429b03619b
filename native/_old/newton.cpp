// Newton's step for all pairs of atoms, as `PairwiseNewton` of elldict.solver.directions takes it, and the errors of
// atoms by the same angles, as `atom_errors` of elldict.theory.error_bars: for few atoms NumPy takes longer to begin each of
// its operations than all of them take here. Rows are added to rows, column by column, so that every instruction set gives
// the same bits.
#include <cmath>
#include <limits>
#include <vector>

#include "tile.h"
#include "vectors.h"

namespace elldict {
namespace {

// to += factor * from, m numbers each
inline void add(double* __restrict to, double factor, const double* __restrict from, std::size_t m) {
  for (std::size_t j = 0; j < m; ++j) to[j] += factor * from[j];
}

// Antisymmetric angles (m, m) of Newton's step from C = E g(Z) Z^T (m, m); the sum of their squares.
double find_angles(const Pairs& pairs, const double* __restrict C, double* __restrict angles) {
  const std::size_t m = pairs.m;
  const double r = pairs.weight, floor = pairs.least_curvature / 2;
  double squares = 0;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < m; ++j) {
      const double own = C[i * m + i], other = C[j * m + j];
      const double curvature = own + other - pairs.slope[i] / r * (pairs.z2[j] / r) - pairs.z2[i] / r * (pairs.slope[j] / r);
      const double least = floor * (std::fabs(own) + std::fabs(other));
      const double angle = (C[i * m + j] - C[j * m + i]) / (curvature < least ? least : curvature);
      angles[i * m + j] = angle;
      squares += angle * angle;
    }
  return squares;
}

}  // namespace

void JOIN(turn_, VARIANT)(const Pairs& pairs, const double* G, const double* A, double* moved) {
  const std::size_t m = pairs.m;
  std::vector<double> memory(3 * m * m);
  double *C = memory.data(), *half = C + m * m, *transposed = half + m * m;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < m; ++j) transposed[j * m + i] = A[i * m + j] / pairs.weight;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t k = 0; k < m; ++k) add(C + i * m, G[i * m + k], transposed + k * m, m);
  const double squares = find_angles(pairs, C, half) / static_cast<double>(m), most = pairs.max_angle;
  const double shrink = most / std::sqrt(squares < most * most ? most * most : squares) / 2;
  for (std::size_t i = 0; i < m * m; ++i) half[i] *= shrink;
  // Cayley's transform: (I - half)^-1 (A + half A). Pivots are not sought: the symmetric part of I - half is I
  for (std::size_t i = 0; i < m; ++i) {
    std::memcpy(moved + i * m, A + i * m, m * sizeof(double));
    for (std::size_t k = 0; k < m; ++k) add(moved + i * m, half[i * m + k], A + k * m, m);
  }
  double* left = C;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < m; ++j) left[i * m + j] = (i == j ? 1.0 : 0.0) - half[i * m + j];
  for (std::size_t k = 0; k < m; ++k)
    for (std::size_t i = k + 1; i < m; ++i) {
      const double factor = -left[i * m + k] / left[k * m + k];
      add(left + i * m + k, factor, left + k * m + k, m - k);
      add(moved + i * m, factor, moved + k * m, m);
    }
  for (std::size_t i = m; i-- > 0;) {
    for (std::size_t k = i + 1; k < m; ++k) add(moved + i * m, -left[i * m + k], moved + k * m, m);
    for (std::size_t j = 0; j < m; ++j) moved[i * m + j] /= left[i * m + i];
  }
}

void JOIN(atom_errors_, VARIANT)(const Moments& of, double n_samples, double* errors) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < of.m; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < of.m; ++j) {
      if (j == i) continue;
      const double curvature = of.gz[i] + of.gz[j] - of.slope[i] * of.z2[j] - of.slope[j] * of.z2[i];
      const double noise = of.g2[i] * of.z2[j] + of.g2[j] * of.z2[i], signal = 2 * (of.gz[i] * of.gz[j]);
      const double variance = curvature > 0 ? (noise - signal) / (n_samples * curvature * curvature) : infinity;
      sum += variance < 0 ? 0.0 : variance;  // not a number stays so
    }
    errors[i] = 2 * sum;
  }
}

}  // namespace elldict
