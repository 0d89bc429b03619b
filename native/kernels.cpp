// Sums over a block of codes in one pass each. NumPy computes the same in src/elldict/solver/kernels.py.
//
// Codes are (m, b): one row per atom, contiguous within the row. All sums are in double precision.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;

// The machine chooses the widest instructions that it has.
#if defined(__x86_64__) && defined(__GNUC__) && defined(__GLIBC__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif
#define INLINE inline __attribute__((always_inline))

namespace {

using Index = std::ptrdiff_t;

template <class T> struct Block {  // of codes, with what a pass computes from them
  const T* z;
  Index m, b, ld;
  const double* weights;  // of the samples, or null
  T* g;                   // first derivative, (m, b)
  T* slope;               // second derivative, (m, b), or null
};

template <class T> struct Row {  // codes of one atom
  const T* __restrict z;
  const double* __restrict weights;
  T* __restrict g;
  T* __restrict slope;
  Index b;

  Row(const Block<T>& block, Index i)
      : z(block.z + i * block.ld), weights(block.weights), g(block.g + i * block.b),
        slope(block.slope ? block.slope + i * block.b : nullptr), b(block.b) {}

  template <bool WEIGHTED> INLINE double weigh(Index j, double value) const {
    if constexpr (WEIGHTED) return weights[j] * value;
    else return value;
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Smooth l_p norm, 0 < p < 2: minus (x^2 + 1)^(p / 2) for x = z / unit

template <bool IS_L1, class T> INLINE T raise_half(T h, T p) {
  if constexpr (IS_L1) return std::sqrt(h);
  else return std::pow(h, p / 2);
}

template <bool WEIGHTED, bool IS_L1, class T> INLINE double smooth_row(Row<T> row, T rate, T p) {
  double value = 0;
  for (Index j = 0; j < row.b; ++j) {
    const T x = row.z[j] * rate, h = x * x + 1, power = raise_half<IS_L1>(h, p);
    value -= row.template weigh<WEIGHTED>(j, power);
    row.g[j] = -p * rate * x * (power / h);
  }
  if (row.slope)
    for (Index j = 0; j < row.b; ++j) {
      const T x = row.z[j] * rate, h = x * x + 1;
      row.slope[j] = -p * rate * rate * raise_half<IS_L1>(h, p) / (h * h) * (1 + (p - 1) * x * x);
    }
  return value;
}

// ---------------------------------------------------------------------------------------------------------------------
// |x|^p for x = z / std, with a sign and a linear term for each atom: g = linear x + sign |x|^(p - 2) x

template <class T> INLINE T raise(T size, T exponent) {
  if (exponent == T(1)) return size;
  if (exponent == T(2)) return size * size;
  return std::pow(size, exponent);
}

template <bool WEIGHTED, class T> INLINE double power_row(Row<T> row, T rate, T p, T linear, T sign) {
  double value = 0;
  for (Index j = 0; j < row.b; ++j) {
    const T x = row.z[j] * rate, power = raise(std::abs(x), p - 2);
    value += row.template weigh<WEIGHTED>(j, power * x * x);
    row.g[j] = (linear + sign * power) * x * rate;
  }
  if (row.slope)
    for (Index j = 0; j < row.b; ++j)
      row.slope[j] = (linear + sign * (p - 1) * raise(std::abs(row.z[j] * rate), p - 2)) * rate * rate;
  return value;
}

template <bool WEIGHTED, class T> INLINE void moments_row(Row<T> row, T rate, T p, double* low, double* high) {
  double below = 0, above = 0;
  for (Index j = 0; j < row.b; ++j) {
    const T x = row.z[j] * rate, power = raise(std::abs(x), p - 2);
    below += row.template weigh<WEIGHTED>(j, power);
    above += row.template weigh<WEIGHTED>(j, power * x * x);
  }
  *low += below;
  *high += above;
}

// ---------------------------------------------------------------------------------------------------------------------
// Bins: the leading bits of t = 1 + |x| / unit, eight to the octave

constexpr int SUB_BITS = 3;

constexpr int REST_BITS = 52 - SUB_BITS;

INLINE std::int64_t read_bits(double t) {
  std::int64_t bits;
  std::memcpy(&bits, &t, 8);
  return bits - (std::int64_t(1023) << 52);
}

INLINE double make_double(std::int64_t bits) {  // the inverse of read_bits
  double t;
  bits += std::int64_t(1023) << 52;
  std::memcpy(&t, &bits, 8);
  return t;
}

struct Places {  // of some codes
  static constexpr Index MOST = 512;
  std::int32_t bin[MOST], next[MOST];  // the bin of each, and the neighbour on the side of its centre where it lies
  double away[MOST];                   // from the centre, relative to the distance of the two centres
};

struct Bins {
  double unit_rate;  // 1 / unit
  Index half;        // bins on each side of zero

  INLINE Index find(double x) const {
    const Index k = std::min(Index(read_bits(1 + std::abs(x) * unit_rate) >> REST_BITS), half - 1);
    return x < 0 ? half - 1 - k : half + k;
  }

  template <class T> INLINE void place(const T* __restrict z, Index n, double rate, Places& __restrict to) const {
    constexpr std::int64_t REST = std::int64_t(1) << REST_BITS, PER_OCTAVE = 1 << SUB_BITS;
    const std::int64_t last = (std::int64_t(half) - 1) * REST + REST / 2;  // centre of the last bin
    for (Index j = 0; j < n; ++j) {
      const double x = double(z[j]) * rate;
      const std::int64_t all = read_bits(1 + std::abs(x) * unit_rate), bits = all < last ? all : last, k = bits >> REST_BITS;
      const double rest = make_double((bits & (REST - 1)) << SUB_BITS) - 1.5;
      const double in_octave = double(std::int32_t(k & (PER_OCTAVE - 1)));
      const double up = in_octave == PER_OCTAVE - 1 ? 2.0 / 3 : 1.0;  // bins of the next octave are twice as wide
      const double down = (in_octave == 0) & (std::int32_t(k) != 0) ? 4.0 / 3 : 1.0;
      const double from_centre = rest * (rest > 0 ? up : down);
      const std::int32_t step = from_centre > 0 ? 1 : -1, far = std::int32_t(k);
      to.bin[j] = std::int32_t(half) + (x < 0 ? -1 - far : far);
      to.next[j] = to.bin[j] + (x < 0 ? -step : step);
      to.away[j] = std::abs(from_centre);
    }
  }
};

// log q is quadratic within a bin: its value and two derivatives at the centre
struct Tables {
  const double *centres, *level, *tilt, *bend;
};

template <bool WEIGHTED, class T> INLINE double density_row(Row<T> row, double rate, Bins bins, Tables at) {
  constexpr Index CHUNK = 512;
  std::int32_t where[CHUNK];
  double away[CHUNK];
  double value = 0;
  for (Index begin = 0; begin < row.b; begin += CHUNK) {
    const Index n = std::min(CHUNK, row.b - begin);
    for (Index j = 0; j < n; ++j) {
      away[j] = double(row.z[begin + j]) * rate;
      where[j] = std::int32_t(bins.find(away[j]));
    }
    for (Index j = 0; j < n; ++j) {
      const std::int32_t k = where[j];
      const double d = away[j] - at.centres[k], first = at.tilt[k] + at.bend[k] * d;
      value += row.template weigh<WEIGHTED>(begin + j, at.level[k] + d * (at.tilt[k] + first) / 2);
      row.g[begin + j] = T(first * rate);
    }
    if (row.slope)
      for (Index j = 0; j < n; ++j) row.slope[begin + j] = T(at.bend[where[j]] * rate * rate);
  }
  return value;
}

template <bool WEIGHTED, class T>
INLINE void histogram_row(Row<T> row, double rate, Bins bins, const std::int8_t* part, Index part_size,
                          double* counts) {
  Places at;
  for (Index begin = 0; begin < row.b; begin += Places::MOST) {
    const Index n = std::min(Places::MOST, row.b - begin);
    bins.place(row.z + begin, n, rate, at);
    for (Index j = 0; j < n; ++j) {
      double* to = counts + part[begin + j] * part_size;
      to[at.bin[j]] += row.template weigh<WEIGHTED>(begin + j, 1 - at.away[j]);
      to[at.next[j]] += row.template weigh<WEIGHTED>(begin + j, at.away[j]);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Expectation-maximisation of mixture weights, for N codes and 8 bins at a time

typedef double Vector8 __attribute__((vector_size(64)));

INLINE void load(Vector8& to, const double* from) { std::memcpy(&to, from, sizeof(Vector8)); }

INLINE void store(double* to, const Vector8& from) { std::memcpy(to, &from, sizeof(Vector8)); }

INLINE double add_lanes(const Vector8& vector) {
  double sum = 0;
  for (Index l = 0; l < 8; ++l) sum += vector[l];
  return sum;
}

constexpr Index LANES = 8;
constexpr Index CODES = 4;
constexpr double NEGLIGIBLE = 1e-60;  // density of a component in a bin, where the widest has 1e-14 or more
constexpr double LEAST = 1e-290;      // keeps ratios finite where weights have vanished

template <Index N> struct Mixtures {  // of N codes, over the bins in which one of them has counts
  Index K, B = 0, groups;             // components, bins, groups of 8 bins
  std::vector<double> q;              // (K, groups, 8) densities of components
  std::vector<double> counts, ratio;  // (groups, N, 8)
  std::vector<Index> first, last;     // groups in which each component does not vanish
  double totals[N] = {};

  Mixtures(const double* all_counts, const double* all_q, Index K, Index n_bins) : K(K), first(K), last(K) {
    std::vector<Index> used;
    for (Index b = 0; b < n_bins; ++b) {
      double size = 0;
      for (Index c = 0; c < N; ++c) size += all_counts[c * n_bins + b];
      if (size > 0) used.push_back(b);
    }
    B = Index(used.size());
    groups = (B + LANES - 1) / LANES;
    q.assign(K * LANES * groups, 1.0);  // bins without counts at the end
    counts.resize(groups * N * LANES);
    ratio.resize(groups * N * LANES);
    for (Index b = 0; b < B; ++b)
      for (Index c = 0; c < N; ++c) {
        const double count = all_counts[c * n_bins + used[b]];
        counts[(b / LANES * N + c) * LANES + b % LANES] = count;
        totals[c] += count;
      }
    for (Index k = 0; k < K; ++k) {
      double* row = &q[k * LANES * groups];
      Index begin = B, end = 0;
      for (Index b = 0; b < B; ++b) {
        row[b] = all_q[k * n_bins + used[b]];
        if (row[b] > NEGLIGIBLE) {
          begin = std::min(begin, b);
          end = b + 1;
        }
      }
      first[k] = std::min(begin, end) / LANES;
      last[k] = (end + LANES - 1) / LANES;
    }
  }

  INLINE void divide_counts(const double* weights) {  // by the density of the mixture
    for (Index g = 0; g < groups; ++g) {
      Vector8 row, count, density[N];
      for (Index c = 0; c < N; ++c) density[c] = Vector8{} + LEAST;
      for (Index k = 0; k < K; ++k) {
        if (g < first[k] || g >= last[k]) continue;
        load(row, &q[(k * groups + g) * LANES]);
        for (Index c = 0; c < N; ++c) density[c] += weights[k * N + c] * row;
      }
      for (Index c = 0; c < N; ++c) {
        load(count, &counts[(g * N + c) * LANES]);
        store(&ratio[(g * N + c) * LANES], count / density[c]);
      }
    }
  }

  INLINE void sum_shares(double* shares) const {  // of the codes that belong to each component, over its weight
    for (Index k = 0; k < K; ++k) {
      Vector8 row, part, sums[N] = {};
      for (Index g = first[k]; g < last[k]; ++g) {
        load(row, &q[(k * groups + g) * LANES]);
        for (Index c = 0; c < N; ++c) {
          load(part, &ratio[(g * N + c) * LANES]);
          sums[c] += part * row;
        }
      }
      for (Index c = 0; c < N; ++c) shares[k * N + c] = add_lanes(sums[c]) / totals[c];
    }
  }

  INLINE void fit(double* weights, double* shares, Index rounds) {
    for (Index round = 0; round < rounds; ++round) {
      divide_counts(weights);
      sum_shares(shares);
      double sums[N] = {};
      for (Index i = 0; i < K * N; ++i) {
        const double root = std::sqrt(shares[i]);
        weights[i] *= shares[i] * root * std::sqrt(root);  // the power 1.75
      }
      for (Index k = 0; k < K; ++k)
        for (Index c = 0; c < N; ++c) sums[c] += weights[k * N + c];
      for (Index k = 0; k < K; ++k)
        for (Index c = 0; c < N; ++c) weights[k * N + c] /= sums[c];
    }
  }
};

// Weights are (K, N) for each group of N codes, so that they can be read in order.
WIDEST void em_all(double* weights, const double* counts, const double* q, Index m, Index K, Index B, Index rounds) {
  std::vector<double> shares(CODES * K);
  Index i = 0;
  for (; i + CODES <= m; i += CODES)
    Mixtures<CODES>(counts + i * B, q, K, B).fit(weights + i * K, shares.data(), rounds);
  for (; i < m; ++i) Mixtures<1>(counts + i * B, q, K, B).fit(weights + i * K, shares.data(), rounds);
}

// ---------------------------------------------------------------------------------------------------------------------
// One function for each precision, so that each is compiled for every instruction set

#define SUM_ROWS(T, CALL)                                           \
  double value = 0;                                                 \
  for (Index i = 0; i < block.m; ++i) {                             \
    const Row<T> row(block, i);                                     \
    if (block.weights) { constexpr bool WEIGHTED = true; value += CALL; } \
    else { constexpr bool WEIGHTED = false; value += CALL; }        \
  }                                                                 \
  return value;

#define FUNCTIONS(T)                                                                                           \
  WIDEST double smooth_all(const Block<T>& block, double rate, double p) {                                     \
    SUM_ROWS(T, (p == 1 ? smooth_row<WEIGHTED, true, T>(row, T(rate), T(p))                                    \
                        : smooth_row<WEIGHTED, false, T>(row, T(rate), T(p))))                                 \
  }                                                                                                            \
  WIDEST double power_all(const Block<T>& block, const double* rates, double p, const double* linear,          \
                          const double* sign) {                                                                \
    SUM_ROWS(T, (power_row<WEIGHTED, T>(row, T(rates[i]), T(p), T(linear[i]), T(sign[i]))))                    \
  }                                                                                                            \
  WIDEST double moments_all(const Block<T>& block, const double* rates, double p, double* sums) {              \
    SUM_ROWS(T, (moments_row<WEIGHTED, T>(row, T(rates[i]), T(p), sums + i, sums + block.m + i), 0))           \
  }                                                                                                            \
  WIDEST double density_all(const Block<T>& block, const double* rates, Bins bins, const double* centres,      \
                            const double* tables) {                                                            \
    const Index B = 2 * bins.half, size = block.m * B;                                                         \
    const double *level = tables, *tilt = tables + size, *bend = tables + 2 * size;                            \
    SUM_ROWS(T, (density_row<WEIGHTED, T>(row, rates[i], bins, {centres, level + i * B, tilt + i * B, bend + i * B}))) \
  }                                                                                                            \
  WIDEST double histogram_all(const Block<T>& block, const double* rates, Bins bins, const std::int8_t* part,  \
                              double* counts) {                                                                \
    const Index B = 2 * bins.half;                                                                             \
    SUM_ROWS(T, (histogram_row<WEIGHTED, T>(row, rates[i], bins, part, block.m * B, counts + i * B), 0))       \
  }
FUNCTIONS(float)
FUNCTIONS(double)

// ---------------------------------------------------------------------------------------------------------------------
// Python

template <class T> using Matrix = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;
template <class T> using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Cube = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Weights = std::optional<Vector<const double>>;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

template <class T> Block<T> make_block(const Matrix<const T>& Z, const Weights& weights) {
  require(Z.stride(1) == 1 || Z.shape(1) <= 1, "rows of codes are not contiguous");
  require(!weights || weights->shape(0) == Z.shape(1), "there is not one weight for each sample");
  const double* w = weights ? weights->data() : nullptr;
  return {Z.data(), Index(Z.shape(0)), Index(Z.shape(1)), Index(Z.stride(0)), w, nullptr, nullptr};
}

template <class T>
Block<T> make_block(const Matrix<const T>& Z, const Weights& weights, Table<T>& g, Table<T>& slope) {
  Block<T> block = make_block<T>(Z, weights);
  const auto fits = [&](const Table<T>& out) { return Index(out.shape(0)) == block.m && Index(out.shape(1)) == block.b; };
  require(fits(g), "g has another shape than the codes");
  require(fits(slope) || slope.size() == 0, "slope has another shape than the codes");
  block.g = g.data();
  block.slope = slope.size() ? slope.data() : nullptr;
  return block;
}

void require_codes(const Vector<const double>& row, Index m) {
  require(Index(row.shape(0)) == m, "there is not one number for each atom");
}

template <class T> void add_functions(nb::module_& module) {
  module.def("smooth", [](Matrix<const T> Z, double rate, double p, Weights w, Table<T> g, Table<T> h) {
    const auto block = make_block<T>(Z, w, g, h);
    nb::gil_scoped_release release;
    return smooth_all(block, rate, p);
  }, nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().noconvert(), nb::arg().noconvert());
  module.def("power", [](Matrix<const T> Z, Vector<const double> rates, double p, Vector<const double> linear,
                         Vector<const double> sign, Weights w, Table<T> g, Table<T> h) {
    const auto block = make_block<T>(Z, w, g, h);
    for (const auto* row : {&rates, &linear, &sign}) require_codes(*row, block.m);
    nb::gil_scoped_release release;
    return power_all(block, rates.data(), p, linear.data(), sign.data());
  }, nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
     nb::arg().noconvert(), nb::arg().noconvert());
  module.def("moments", [](Matrix<const T> Z, Vector<const double> rates, double p, Weights w, Table<double> sums) {
    const auto block = make_block<T>(Z, w);
    require_codes(rates, block.m);
    require(sums.shape(0) == 2 && Index(sums.shape(1)) == block.m, "sums have another shape");
    nb::gil_scoped_release release;
    moments_all(block, rates.data(), p, sums.data());
  }, nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().noconvert());
  module.def("density", [](Matrix<const T> Z, Vector<const double> rates, double unit_rate, Vector<const double> centres,
                           Cube<const double> tables, Weights w, Table<T> g, Table<T> h) {
    const auto block = make_block<T>(Z, w, g, h);
    require_codes(rates, block.m);
    require(tables.shape(0) == 3 && Index(tables.shape(1)) == block.m && tables.shape(2) == centres.shape(0),
            "tables have another shape");
    nb::gil_scoped_release release;
    return density_all(block, rates.data(), Bins{unit_rate, Index(centres.shape(0) / 2)}, centres.data(), tables.data());
  }, nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
     nb::arg().noconvert(), nb::arg().noconvert());
  module.def("histogram", [](Matrix<const T> Z, Vector<const double> rates, double unit_rate,
                             Vector<const std::int8_t> part, Weights w, Cube<double> counts) {
    const auto block = make_block<T>(Z, w);
    require_codes(rates, block.m);
    require(Index(part.shape(0)) == block.b && Index(counts.shape(1)) == block.m, "counts have another shape");
    for (Index j = 0; j < block.b; ++j)
      require(part.data()[j] >= 0 && part.data()[j] < Index(counts.shape(0)), "no counts for a part");
    nb::gil_scoped_release release;
    histogram_all(block, rates.data(), Bins{unit_rate, Index(counts.shape(2) / 2)}, part.data(), counts.data());
  }, nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().noconvert());
}

}  // namespace

NB_MODULE(_kernels, module) {
  add_functions<float>(module);
  add_functions<double>(module);
  module.def("em", [](nb::ndarray<double, nb::ndim<2>, nb::c_contig> weights,
                      nb::ndarray<const double, nb::ndim<2>, nb::c_contig> counts,
                      nb::ndarray<const double, nb::ndim<2>, nb::c_contig> q, Index rounds) {
    const Index m = weights.shape(0), K = weights.shape(1), B = q.shape(1);
    require(Index(counts.shape(0)) == m && Index(counts.shape(1)) == B && Index(q.shape(0)) == K,
            "weights, counts and densities do not fit");
    nb::gil_scoped_release release;
    std::vector<double> grouped(m * K);  // codes of a group are neighbours
    const auto place = [=](Index i, Index k) {
      const Index whole = m / CODES * CODES, size = i < whole ? CODES : 1, first = i < whole ? i / CODES * CODES : i;
      return first * K + k * size + (i - first);
    };
    for (Index i = 0; i < m; ++i)
      for (Index k = 0; k < K; ++k) grouped[place(i, k)] = weights.data()[i * K + k];
    em_all(grouped.data(), counts.data(), q.data(), m, K, B, rounds);
    for (Index i = 0; i < m; ++i)
      for (Index k = 0; k < K; ++k) weights.data()[i * K + k] = grouped[place(i, k)];
  }, nb::arg("weights").noconvert(), nb::arg("counts"), nb::arg("q"), nb::arg("rounds"));
}
