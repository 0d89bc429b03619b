// Squared codes counted in bins of their logarithm, as `CodeHistogram` of elldict.solver.spike_slab counts them.
#include "histogram.h"

#include <cstdint>
#include <cstring>

namespace elldict {
namespace {

// The first bits of a float32, exponent and all, are its logarithm, near enough.
inline std::int32_t find_bin(double square, int dropped_bits) {
  const float rounded = static_cast<float>(square);
  std::int32_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  return bits >> dropped_bits;
}

struct Bin {
  double count, total;
};

struct Range {
  std::int32_t lowest, highest;
};

template <class Square> Range find_range(std::size_t n, int dropped_bits, const Square& square) {
  Range range{INT32_MAX, INT32_MIN};
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t bin = find_bin(square(i), dropped_bits);
    range.lowest = bin < range.lowest ? bin : range.lowest;
    range.highest = bin > range.highest ? bin : range.highest;
  }
  return range;
}

template <class Square>
Binned count(std::size_t b, std::size_t m, const double* weights, int dropped_bits, const Square& square) {
  const Range range = find_range(b * m, dropped_bits, square);
  const std::size_t n_bins = b * m ? static_cast<std::size_t>(range.highest - range.lowest) + 1 : 0;
  std::vector<Bin> bins(m * n_bins);
  for (std::size_t i = 0, k = 0; i < b; ++i)  // row by row, as NumPy adds up
    for (std::size_t j = 0; j < m; ++j, ++k) {
      const double z2 = square(k), weight = weights ? weights[k] : 1.0;
      Bin& bin = bins[j * n_bins + static_cast<std::size_t>(find_bin(z2, dropped_bits) - range.lowest)];
      bin.count += weight;
      bin.total += weight * z2;
    }
  std::vector<std::size_t> used;  // by any atom
  for (std::size_t k = 0; k < n_bins; ++k)
    for (std::size_t j = 0; j < m; ++j)
      if (bins[j * n_bins + k].count > 0) {
        used.push_back(k);
        break;
      }
  Binned found{used.size(), std::vector<double>(2 * m * used.size())};
  double *counts = found.numbers.data(), *means = counts + m * used.size();
  for (std::size_t j = 0; j < m; ++j)
    for (const std::size_t k : used) {
      const Bin& bin = bins[j * n_bins + k];
      *counts++ = bin.count;
      *means++ = bin.total / (bin.count > 1e-300 ? bin.count : 1e-300);
    }
  return found;
}

}  // namespace

Binned count_codes(const double* Z, std::size_t b, std::size_t m, int dropped_bits) {
  return count(b, m, nullptr, dropped_bits, [Z](std::size_t k) { return Z[k] * Z[k]; });
}

Binned count_squares(const double* z2, const double* weights, std::size_t b, std::size_t m, int dropped_bits) {
  return count(b, m, weights, dropped_bits, [z2](std::size_t k) { return z2[k]; });
}

}  // namespace elldict
