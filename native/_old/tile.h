// Kernels that read the codes of one tile once: they write the derivative g and add up what a pass sums, by columns.
#pragma once
#include <cstddef>

namespace elldict {

// Codes Z (b, m), row by row; g and, where it is asked for, h of a second objective have the same shape.
// `sums` (n_sums, m) are written in full.
template <class T>
struct Tile {
  const T* Z;
  std::size_t b, m;
  T* g;
  T* h;
  double* sums;
};

// |z|^exponent as a product of `whole` factors |z| and, if `half`, of its square root.
struct Power {
  int whole;
  bool half;
};

template <class T>
struct Kernels {
  // sums: |z|^(p-2), |z|, z^2, g^2
  void (*lp)(const Tile<T>&, Power);
  // the same without sums
  void (*lp_gradient)(const Tile<T>&, Power);
  // the same with |z|^(p-2) in g at first, which then becomes g
  void (*lp_of_weight)(const Tile<T>&);
  // sums: z^2, (1 + z^2)^(1/2), and of their quotients with 1 + z^2; then |z|, g^2
  void (*smooth)(const Tile<T>&);
  // sums: z^2, (1 + z^2)^(1/2)
  void (*smooth_gradient)(const Tile<T>&);
  // sums: z^2, below, logs, missing, bend, g^2; of a second objective also |z|^(p-2), |z|, h^2, g h
  void (*likelihood)(const Tile<T>&, const T* offset, const T* rate);
  void (*likelihood_beside)(const Tile<T>&, const T* offset, const T* rate, Power);
  // no sums; g and, in h, its slope at every code
  void (*likelihood_slopes)(const Tile<T>&, const T* offset, const T* rate, const T* kept, const T* bend);
  // sums: log q, its second derivative, g^2, z^2, |z|, by quadratic functions of z in every bin
  void (*mixture)(const Tile<T>&, const T* std, const T* level, const T* linear, const T* second, int n_bins);
};

// Squared codes of m atoms, counted in bins: two arrays (m, b).
struct Histogram {
  const double *z2, *count;
  std::size_t m, b;
};

// Parameters of the spike-and-slab law of m atoms, written in place; power and noise do not fall below `least`.
struct Laws {
  double *density, *power, *noise;
  double least;
};

// What Newton's step knows of the codes of m atoms: sums over samples of this weight.
struct Pairs {
  std::size_t m;
  const double *slope, *z2;
  double weight, least_curvature, max_angle;
};

// Means over the samples of the codes of m atoms: g z, g^2, g', z^2.
struct Moments {
  std::size_t m;
  const double *gz, *g2, *slope, *z2;
};

struct AllKernels {
  Kernels<float> single;
  Kernels<double> twice;
  // rounds of expectation maximisation, until no parameter changes by more than the share `close`
  void (*descend)(const Histogram&, Laws, int rounds, double close, bool noise_known);
  // maximum of the likelihood of one atom, from x in place, by log odds of the density, log power and log noise, in bounds
  void (*climb)(const Histogram&, double* x, const double* low, const double* high);
  // atoms (m, m) moved by Newton's step for pairs, from the gradient G (m, m) at the atoms A (m, m)
  void (*turn)(const Pairs&, const double* G, const double* A, double* moved);
  // twice the sums (m,) of the variances of the angles of each atom with all others
  void (*atom_errors)(const Moments&, double n_samples, double* errors);
  const char* name;
};

extern const AllKernels kernels_baseline, kernels_avx2, kernels_avx512;

}  // namespace elldict
