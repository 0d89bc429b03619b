// The kernels of tile.h for one instruction set, VARIANT. All variants give the same bits: each column of each row of a
// group is added up in the same order, whatever the width of a vector.
#include "tile.h"
#include "vectors.h"

namespace elldict {
namespace {  // other variants have functions of the same names

constexpr std::size_t GROUP_BYTES = 64;  // rows come in groups that are multiples of this: of every vector
constexpr std::size_t BLOCK_BYTES = 1 << 16;  // codes that stay in the nearest caches while all columns are gone through
constexpr std::size_t FEWEST_GROUPS = 16, MOST_GROUPS = 64;  // of a block: float32 sums of 64 terms keep six digits

template <class T> inline V<T> raise(V<T> a, Power power) {
  V<T> result = power.half ? root<T>(a) : a;
  for (int i = power.half ? 0 : 1; i < power.whole; ++i) result *= a;
  return result;
}

// An operation has `n_sums`, `has_h`, `reads_g`, and for one place in a group a function of z, g, h and sums. Sum number
// `n_product`, if it has one, is the logarithm of a product, of at most MOST_GROUPS factors up to 2.
struct Plain {
  static constexpr int n_product = -1;
  static constexpr bool has_h = false, reads_g = false;
};

template <class T, int KIND> struct Lp : Plain {  // KIND 0: sums; 1: no sums; 2: sums, with the weight in g
  static constexpr int n_sums = KIND == 1 ? 0 : 4;
  static constexpr bool reads_g = KIND == 2;
  Power power;
  explicit Lp(Power how) : power(how) {}
  const Lp& at(std::size_t) const { return *this; }
  inline void operator()(V<T> z, V<T>& g, V<T>&, V<T>* sums) const {
    const V<T> a = magnitude<T>(z);
    const V<T> weight = KIND == 2 ? g : raise<T>(a, power);
    g = weight * z;
    if constexpr (KIND != 1) {
      sums[0] += weight;
      sums[1] += a;
      sums[2] += z * z;
      sums[3] += g * g;
    }
  }
};

template <class T, bool MOMENTS> struct Smooth : Plain {
  static constexpr int n_sums = MOMENTS ? 6 : 2;
  const Smooth& at(std::size_t) const { return *this; }
  inline void operator()(V<T> z, V<T>& g, V<T>&, V<T>* sums) const {
    const V<T> z2 = z * z, s = z2 + T(1), power = root<T>(s), weight = power / s;
    g = z - weight * z;
    sums[0] += z2;
    sums[1] += power;
    if constexpr (MOMENTS) {
      sums[2] += weight;
      sums[3] += weight / s;
      sums[4] += magnitude<T>(z);
      sums[5] += g * g;
    }
  }
};

template <class T, bool BESIDE> struct Likelihood {
  static constexpr int n_sums = BESIDE ? 10 : 6, n_product = 2;
  static constexpr bool has_h = BESIDE, reads_g = false;
  const T *offset, *rate;  // of every column of a group
  Power power;
  struct Here {
    V<T> offset, rate;
    Power power;
    // with e = exp(-2 |half|): tanh |half| is (1 - e) / (1 + e), and 1 -+ tanh are quotients that do not cancel
    inline void operator()(V<T> z, V<T>& g, V<T>& h, V<T>* sums) const {
      const V<T> zero = fill<T>(T(0)), one = fill<T>(T(1));
      const V<T> z2 = z * z, half = z2 * rate + offset;
      const V<T> e = exp_negative(magnitude<T>(half) * T(-2));
      const V<T> share = T(2) / (e + T(1));
      const V<T> active = share * (half < zero ? e : one);  // 1 + tanh
      const V<T> missing = -share * (half < zero ? one : e);  // tanh - 1
      g = z * active;
      const V<T> below = half < zero ? half : half * T(0);  // not a number stays so
      sums[0] += z2;
      sums[1] += below;
      sums[2] *= share;  // 1 + |tanh|
      sums[3] += missing;
      sums[4] += g * z * missing;
      sums[5] += g * g;
      if constexpr (BESIDE) {
        const V<T> a = magnitude<T>(z), weight = raise<T>(a, power);
        h = weight * z;
        sums[6] += weight;
        sums[7] += a;
        sums[8] += h * h;
        sums[9] += g * h;
      }
    }
  };
  Here at(std::size_t place) const { return {load(offset + place), load(rate + place), power}; }
};

// g and slope of the likelihood, code by code: kept and bend are what multiplies g, and its product with z.
template <class T> struct Slopes {
  static constexpr int n_sums = 0, n_product = -1;
  static constexpr bool has_h = true, reads_g = false;
  const T *offset, *rate, *kept, *bend;  // of every column of a group
  struct Here {
    V<T> offset, rate, kept, bend;
    inline void operator()(V<T> z, V<T>& g, V<T>& h, V<T>*) const {
      const V<T> zero = fill<T>(T(0)), one = fill<T>(T(1));
      const V<T> half = z * z * rate + offset;
      const V<T> e = exp_negative(magnitude<T>(half) * T(-2));
      const V<T> share = T(2) / (e + T(1));
      const V<T> active = share * (half < zero ? e : one), missing = -share * (half < zero ? one : e);
      g = z * active;
      h = kept * T(2) + kept * missing + bend * (g * z * missing);
      g = g * kept;
    }
  };
  Here at(std::size_t place) const {
    return {load(offset + place), load(rate + place), load(kept + place), load(bend + place)};
  }
};

// The first three of the four numbers of each of these bins.
template <class T> inline void look_up(const T* bins, I<T> which, V<T>& c0, V<T>& c1, V<T>& c2) {
#if defined(__SSE2__)
  if constexpr (std::is_same_v<T, float>) {  // four bins at a time, turned into columns
    constexpr int parts = LANES<float> / 4;
    __m128 columns[3][parts];
    for (int i = 0; i < parts; ++i) {
      __m128 a = _mm_loadu_ps(bins + 4 * static_cast<std::size_t>(which[4 * i]));
      __m128 b = _mm_loadu_ps(bins + 4 * static_cast<std::size_t>(which[4 * i + 1]));
      __m128 c = _mm_loadu_ps(bins + 4 * static_cast<std::size_t>(which[4 * i + 2]));
      __m128 d = _mm_loadu_ps(bins + 4 * static_cast<std::size_t>(which[4 * i + 3]));
      _MM_TRANSPOSE4_PS(a, b, c, d);
      columns[0][i] = a;
      columns[1][i] = b;
      columns[2][i] = c;
    }
    c0 = join(columns[0]);
    c1 = join(columns[1]);
    c2 = join(columns[2]);
    return;
  }
#endif
  for (int i = 0; i < LANES<T>; ++i) {
    const T* bin = bins + 4 * static_cast<std::size_t>(which[i]);
    c0[i] = bin[0];
    c1[i] = bin[1];
    c2[i] = bin[2];
  }
}

template <class T> struct Mixture {
  static constexpr int n_sums = 5, n_product = -1;
  static constexpr bool has_h = false, reads_g = false;
  const T* std;  // of every column of a group
  const typename Types<T>::Int* base;  // number of the first bin of its atom
  const T* bins;  // four numbers each: level, linear, second, and none
  T n_bins;
  struct Here {
    V<T> std;
    I<T> base;
    const T* bins;
    T n_bins;
    inline void operator()(V<T> z, V<T>& g, V<T>&, V<T>* sums) const {
      const V<T> a = magnitude<T>(z), half = fill<T>(n_bins / 2), last = fill<T>(n_bins - 1), zero = fill<T>(T(0));
      V<T> u = z / (a + std) * half + half;
      u = u > zero ? u : zero;  // also where it is not a number
      u = u < last ? u : last;
      V<T> c0, c1, c2;
      look_up<T>(bins, base + __builtin_convertvector(u, I<T>), c0, c1, c2);
      const V<T> curved = c2 * z;
      sums[0] += c0 + z * (c1 + curved * T(0.5));
      g = c1 + curved;
      sums[1] += c2;
      sums[2] += g * g;
      sums[3] += z * z;
      sums[4] += a;
    }
  };
  Here at(std::size_t place) const {
    I<T> bases;
    std::memcpy(&bases, base + place, sizeof bases);
    return {load(std + place), bases, bins, n_bins};
  }
};

// Memory for some numbers of a call, all zero.
template <class T> struct Scratch {
  T* data;
  explicit Scratch(std::size_t n) : data(new T[n + 64 / sizeof(T)]()) {}
  ~Scratch() { delete[] data; }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

std::size_t gcd(std::size_t a, std::size_t b) {
  while (b) {
    const std::size_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Rows of a group: the fewest whose codes fill whole vectors.
template <class T> std::size_t group_rows(std::size_t m) {
  const std::size_t lanes = GROUP_BYTES / sizeof(T);
  return lanes / gcd(m, lanes);
}

// A row of m numbers, repeated for every row of a group.
template <class T> void repeat(const T* row, std::size_t m, std::size_t rows, T* to) {
  for (std::size_t i = 0; i < rows; ++i) std::memcpy(to + i * m, row, m * sizeof(T));
}

template <class T, class Op> void run(const Tile<T>& tile, const Op& op) {
  constexpr int n_sums = Op::n_sums, lanes = LANES<T>;
  const std::size_t rows = group_rows<T>(tile.m), length = rows * tile.m, n_groups = tile.b / rows;
  std::size_t n_block = BLOCK_BYTES / (length * sizeof(T));
  n_block = n_block < FEWEST_GROUPS ? FEWEST_GROUPS : n_block > MOST_GROUPS ? MOST_GROUPS : n_block;
  Scratch<double> totals(n_sums * length);
  const auto add = [&](const V<T>* sums, std::size_t place, int used) {
    for (int k = 0; k < n_sums; ++k)
      for (int i = 0; i < used; ++i)
        totals.data[k * length + place + i] += k == Op::n_product ? __builtin_log(sums[k][i]) : sums[k][i];
  };
  for (std::size_t first = 0; first < n_groups; first += n_block) {
    const std::size_t last = first + n_block < n_groups ? first + n_block : n_groups;
    for (std::size_t place = 0; place < length; place += lanes) {
      const auto here = op.at(place);
      V<T> sums[n_sums + 1] = {};
      if constexpr (Op::n_product >= 0) sums[Op::n_product] = fill<T>(T(1));
      for (std::size_t k = first * length + place; k < last * length; k += length) {
        V<T> g{}, h{};
        if constexpr (Op::reads_g) g = load(tile.g + k);
        here(load(tile.Z + k), g, h, sums);
        store(tile.g + k, g);
        if constexpr (Op::has_h) store(tile.h + k, h);
      }
      add(sums, place, lanes);
    }
  }
  // rows that fill no group
  const std::size_t start = n_groups * length, left = (tile.b - n_groups * rows) * tile.m;
  for (std::size_t place = 0; place < left; place += lanes) {
    const int used = left - place < static_cast<std::size_t>(lanes) ? static_cast<int>(left - place) : lanes;
    const std::size_t k = start + place, bytes = used * sizeof(T);
    V<T> z{}, g{}, h{}, sums[n_sums + 1] = {};
    if constexpr (Op::n_product >= 0) sums[Op::n_product] = fill<T>(T(1));
    std::memcpy(&z, tile.Z + k, bytes);
    if constexpr (Op::reads_g) std::memcpy(&g, tile.g + k, bytes);
    op.at(place)(z, g, h, sums);
    std::memcpy(tile.g + k, &g, bytes);
    if constexpr (Op::has_h) std::memcpy(tile.h + k, &h, bytes);
    add(sums, place, used);
  }
  for (std::size_t k = 0; k < n_sums; ++k)
    for (std::size_t j = 0; j < tile.m; ++j) {
      double total = 0;
      for (std::size_t row = 0; row < rows; ++row) total += totals.data[k * length + row * tile.m + j];
      tile.sums[k * tile.m + j] = total;
    }
}

template <class T, bool BESIDE> void run_likelihood(const Tile<T>& tile, const T* offset, const T* rate, Power power) {
  const std::size_t rows = group_rows<T>(tile.m);
  Scratch<T> offsets(rows * tile.m), rates(rows * tile.m);
  repeat(offset, tile.m, rows, offsets.data);
  repeat(rate, tile.m, rows, rates.data);
  run(tile, Likelihood<T, BESIDE>{offsets.data, rates.data, power});
}

template <class T>
void run_slopes(const Tile<T>& tile, const T* offset, const T* rate, const T* kept, const T* bend) {
  const std::size_t rows = group_rows<T>(tile.m), length = rows * tile.m;
  Scratch<T> all(4 * length);
  const T* given[] = {offset, rate, kept, bend};
  for (int i = 0; i < 4; ++i) repeat(given[i], tile.m, rows, all.data + i * length);
  run(tile, Slopes<T>{all.data, all.data + length, all.data + 2 * length, all.data + 3 * length});
}

template <class T>
void run_mixture(const Tile<T>& tile, const T* std, const T* level, const T* linear, const T* second, int n_bins) {
  const std::size_t rows = group_rows<T>(tile.m);
  typedef typename Types<T>::Int Int;
  Scratch<T> stds(rows * tile.m), bins(4 * tile.m * n_bins);
  for (std::size_t i = 0; i < tile.m * n_bins; ++i) {  // side by side: a code looks at one place
    bins.data[4 * i] = level[i];
    bins.data[4 * i + 1] = linear[i];
    bins.data[4 * i + 2] = second[i];
  }
  Scratch<Int> bases(rows * tile.m);
  repeat(std, tile.m, rows, stds.data);
  for (std::size_t i = 0; i < rows * tile.m; ++i) bases.data[i] = static_cast<Int>((i % tile.m) * n_bins);
  run(tile, Mixture<T>{stds.data, bases.data, bins.data, static_cast<T>(n_bins)});
}

template <class T> constexpr Kernels<T> make_kernels() {
  return {
      [](const Tile<T>& tile, Power power) { run(tile, Lp<T, 0>(power)); },
      [](const Tile<T>& tile, Power power) { run(tile, Lp<T, 1>(power)); },
      [](const Tile<T>& tile) { run(tile, Lp<T, 2>(Power{1, false})); },
      [](const Tile<T>& tile) { run(tile, Smooth<T, true>{}); },
      [](const Tile<T>& tile) { run(tile, Smooth<T, false>{}); },
      [](const Tile<T>& tile, const T* offset, const T* rate) {
        run_likelihood<T, false>(tile, offset, rate, Power{1, false});
      },
      [](const Tile<T>& tile, const T* offset, const T* rate, Power power) {
        run_likelihood<T, true>(tile, offset, rate, power);
      },
      [](const Tile<T>& tile, const T* offset, const T* rate, const T* kept, const T* bend) {
        run_slopes(tile, offset, rate, kept, bend);
      },
      [](const Tile<T>& tile, const T* std, const T* level, const T* linear, const T* second, int n_bins) {
        run_mixture(tile, std, level, linear, second, n_bins);
      },
  };
}

}  // namespace

void JOIN(descend_, VARIANT)(const Histogram&, Laws, int, double, bool);  // in spike_slab.cpp, as the next is
void JOIN(climb_, VARIANT)(const Histogram&, double*, const double*, const double*);
void JOIN(turn_, VARIANT)(const Pairs&, const double*, const double*, double*);  // in newton.cpp, as the next is
void JOIN(atom_errors_, VARIANT)(const Moments&, double, double*);

const AllKernels JOIN(kernels_, VARIANT) = {make_kernels<float>(), make_kernels<double>(), JOIN(descend_, VARIANT),
                                            JOIN(climb_, VARIANT), JOIN(turn_, VARIANT),
                                            JOIN(atom_errors_, VARIANT), QUOTE(VARIANT)};

}  // namespace elldict
