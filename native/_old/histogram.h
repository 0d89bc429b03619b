// Squared codes counted in bins.
#pragma once
#include <cstddef>
#include <vector>

namespace elldict {

// Counts (m, n_bins) and, after them, mean squares (m, n_bins); bins that are empty for all atoms are left out.
struct Binned {
  std::size_t n_bins;
  std::vector<double> numbers;
};

// Of codes Z (b, m), or of squares z2 (b, m) that count by weights, or once each if there are none. Bins are as wide as
// the bits of a float32 that they drop.
Binned count_codes(const double* Z, std::size_t b, std::size_t m, int dropped_bits);
Binned count_squares(const double* z2, const double* weights, std::size_t b, std::size_t m, int dropped_bits);

}  // namespace elldict
