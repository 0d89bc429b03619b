// Angles of Newton's step for pairs of atoms.
#pragma once
#include <cstddef>

namespace elldict {

// What is known of the codes of m atoms, as sums over samples of this weight: C = sum g z^T (m, m), and either the means
// E g_i' z_j^2 (m, m) or, where `crossed` is null, sums of g' and z^2 (m,), whose means it is a product of.
struct PairSums {
  const double *C, *crossed, *slope, *z2;
  std::size_t m;
  double weight;
};

// Writes angles (m, m), antisymmetric, none beyond `most`; curvatures are at least a share `least` of their size.
void find_angles(const PairSums& sums, double least, double most, double* angles);

}  // namespace elldict
