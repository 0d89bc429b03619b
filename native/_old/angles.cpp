// Angles of Newton's step for pairs of atoms, by one look at each pair.
#include "angles.h"

#include <cmath>

namespace elldict {

void find_angles(const PairSums& sums, double least, double most, double* angles) {
  const std::size_t m = sums.m;
  const double unit = 1 / sums.weight, share = least / 2;
  for (std::size_t i = 0; i < m; ++i) {
    const double own = sums.C[i * m + i] * unit, size = std::fabs(own);
    angles[i * m + i] = 0;
    for (std::size_t j = 0; j < i; ++j) {
      const double other = sums.C[j * m + j] * unit;
      const double crossed = sums.crossed ? sums.crossed[i * m + j] + sums.crossed[j * m + i]
                                          : (sums.slope[i] * sums.z2[j] + sums.slope[j] * sums.z2[i]) * unit * unit;
      const double curvature = own + other - crossed, floor = share * (size + std::fabs(other));
      double angle = (sums.C[i * m + j] - sums.C[j * m + i]) * unit / (curvature < floor ? floor : curvature);
      angle = angle > most ? most : angle < -most ? -most : angle;  // not a number stays so
      angles[i * m + j] = angle;
      angles[j * m + i] = -angle;
    }
  }
}

}  // namespace elldict
