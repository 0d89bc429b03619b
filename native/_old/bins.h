// Codes counted in bins of equal width in z / (|z| + std).
#pragma once
#include <cstddef>

namespace elldict {

// Adds the codes Z (b, m) to counts (m, n_bins); bins as elldict.solver.mixture has them, to the last bit.
template <class T>
void count_bins(const T* Z, std::size_t b, std::size_t m, const double* std, std::size_t n_bins, double* counts);

}  // namespace elldict
