// Codes counted in bins, by one look at them.
#include "bins.h"

#include <cmath>
#include <vector>

namespace elldict {

template <class T>
void count_bins(const T* Z, std::size_t b, std::size_t m, const double* std, std::size_t n_bins, double* counts) {
  const double half = static_cast<double>(n_bins / 2), last = static_cast<double>(n_bins - 1);
  std::vector<double> place(m);
  for (std::size_t row = 0; row < b; ++row) {
    const T* z = Z + row * m;
    for (std::size_t j = 0; j < m; ++j) {
      const double code = z[j], u = code / (std::fabs(code) + std[j]) * half + half;
      place[j] = u < last ? u : last;
    }
    for (std::size_t j = 0; j < m; ++j)
      counts[j * n_bins + static_cast<std::size_t>(place[j] > 0 ? place[j] : 0)] += 1;  // 0 where it is not a number
  }
}

template void count_bins<float>(const float*, std::size_t, std::size_t, const double*, std::size_t, double*);
template void count_bins<double>(const double*, std::size_t, std::size_t, const double*, std::size_t, double*);

}  // namespace elldict
