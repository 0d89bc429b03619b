// The kernels of tile.h for NumPy arrays, by the widest instructions that the machine has. Python's lock is released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "angles.h"
#include "bins.h"
#include "histogram.h"
#include "tile.h"

namespace nb = nanobind;
using namespace elldict;

namespace {

template <class T> using Codes = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Row = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const AllKernels& find_kernels(const std::string& name) {
#if defined(HAS_X86_VARIANTS)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx512 && (name.empty() || name == "avx512")) return kernels_avx512;
  if (avx2 && (name.empty() || name == "avx2")) return kernels_avx2;
#endif
  if (name.empty() || name == "baseline") return kernels_baseline;
  throw std::invalid_argument("this machine has no instructions " + name);
}

const AllKernels* chosen = &find_kernels("");

template <class T> const Kernels<T>& kernels() {
  if constexpr (std::is_same_v<T, float>) return chosen->single;
  else return chosen->twice;
}

template <class T> Tile<T> make_tile(const Codes<T>& Z, Out<T>& g, T* h, Out<double>& sums, std::size_t n_sums) {
  const std::size_t b = Z.shape(0), m = Z.shape(1);
  if (g.shape(0) != b || g.shape(1) != m) throw std::invalid_argument("g has not the shape of the codes");
  if (sums.shape(0) != n_sums || (n_sums && sums.shape(1) != m)) throw std::invalid_argument("sums have another shape");
  return {Z.data(), b, m, g.data(), h, sums.data()};
}

template <class T> void check_row(const Row<T>& row, std::size_t n) {
  if (row.shape(0) != n) throw std::invalid_argument("there is not one number for each atom, or each bin");
}

// An array that is taken as it is: results written to a converted copy would be lost.
auto exact(const char* name) { return nb::arg(name).noconvert(); }

template <class T> void add_functions(nb::module_& module) {
  module.def("lp", [](Codes<T> Z, Out<T> g, Out<double> sums, int whole, bool half) {
    const auto tile = make_tile<T>(Z, g, nullptr, sums, sums.shape(0) ? 4 : 0);
    nb::gil_scoped_release release;
    (tile.b && sums.shape(0) ? kernels<T>().lp : kernels<T>().lp_gradient)(tile, Power{whole, half});
  }, exact("Z"), exact("g"), exact("sums"), nb::arg("whole"), nb::arg("half"));
  module.def("lp_of_weight", [](Codes<T> Z, Out<T> g, Out<double> sums) {
    const auto tile = make_tile<T>(Z, g, nullptr, sums, 4);
    nb::gil_scoped_release release;
    kernels<T>().lp_of_weight(tile);
  }, exact("Z"), exact("g"), exact("sums"));
  module.def("smooth", [](Codes<T> Z, Out<T> g, Out<double> sums) {
    const bool moments = sums.shape(0) == 6;
    const auto tile = make_tile<T>(Z, g, nullptr, sums, moments ? 6 : 2);
    nb::gil_scoped_release release;
    (moments ? kernels<T>().smooth : kernels<T>().smooth_gradient)(tile);
  }, exact("Z"), exact("g"), exact("sums"));
  module.def("likelihood", [](Codes<T> Z, Row<T> offset, Row<T> rate, Out<T> g, Out<double> sums) {
    const auto tile = make_tile<T>(Z, g, nullptr, sums, 6);
    check_row(offset, tile.m);
    check_row(rate, tile.m);
    nb::gil_scoped_release release;
    kernels<T>().likelihood(tile, offset.data(), rate.data());
  }, exact("Z"), exact("offset"), exact("rate"), exact("g"), exact("sums"));
  module.def("likelihood_beside", [](Codes<T> Z, Row<T> offset, Row<T> rate, Out<T> g, Out<T> h, Out<double> sums,
                                     int whole, bool half) {
    const auto tile = make_tile<T>(Z, g, h.data(), sums, 10);
    if (h.shape(0) != tile.b || h.shape(1) != tile.m) throw std::invalid_argument("h has not the shape of the codes");
    check_row(offset, tile.m);
    check_row(rate, tile.m);
    nb::gil_scoped_release release;
    kernels<T>().likelihood_beside(tile, offset.data(), rate.data(), Power{whole, half});
  }, exact("Z"), exact("offset"), exact("rate"), exact("g"), exact("h"), exact("sums"), nb::arg("whole"), nb::arg("half"));
  module.def("likelihood_slopes", [](Codes<T> Z, Row<T> offset, Row<T> rate, Row<T> kept, Row<T> bend, Out<T> g, Out<T> h) {
    const std::size_t b = Z.shape(0), m = Z.shape(1);
    for (const auto* each : {&g, &h})
      if (each->shape(0) != b || each->shape(1) != m) throw std::invalid_argument("g has not the shape of the codes");
    for (const auto* row : {&offset, &rate, &kept, &bend}) check_row(*row, m);
    nb::gil_scoped_release release;
    kernels<T>().likelihood_slopes(Tile<T>{Z.data(), b, m, g.data(), h.data(), nullptr}, offset.data(), rate.data(),
                                   kept.data(), bend.data());
  }, exact("Z"), exact("offset"), exact("rate"), exact("kept"), exact("bend"), exact("g"), exact("h"));
  module.def("mixture", [](Codes<T> Z, Row<T> std, Row<T> level, Row<T> linear, Row<T> second, Out<T> g,
                           Out<double> sums) {
    const auto tile = make_tile<T>(Z, g, nullptr, sums, 5);
    check_row(std, tile.m);
    check_row(level, linear.shape(0));
    check_row(second, linear.shape(0));
    const int n_bins = static_cast<int>(level.shape(0) / (tile.m ? tile.m : 1));
    nb::gil_scoped_release release;
    kernels<T>().mixture(tile, std.data(), level.data(), linear.data(), second.data(), n_bins);
  }, exact("Z"), exact("std"), exact("level"), exact("linear"), exact("second"), exact("g"), exact("sums"));
  module.def("count_bins", [](Codes<T> Z, Row<double> std, Out<double> counts) {
    const std::size_t m = Z.shape(1);
    check_row(std, m);
    if (counts.shape(0) != m || counts.shape(1) < 2) throw std::invalid_argument("there are no bins for each atom");
    nb::gil_scoped_release release;
    count_bins<T>(Z.data(), Z.shape(0), m, std.data(), counts.shape(1), counts.data());
  }, exact("Z"), exact("std"), exact("counts"));
}

}  // namespace

void descend(Codes<double> z2, Codes<double> count, Out<double> law, double least, int rounds, double close,
             bool noise_known) {
  const std::size_t m = z2.shape(0), b = z2.shape(1);
  if (count.shape(0) != m || count.shape(1) != b) throw std::invalid_argument("there is not one count for each square");
  if (law.shape(0) != 3 || law.shape(1) != m) throw std::invalid_argument("a law has three numbers for each atom");
  const Laws laws{law.data(), law.data() + m, law.data() + 2 * m, least};
  nb::gil_scoped_release release;
  chosen->descend(Histogram{z2.data(), count.data(), m, b}, laws, rounds, close, noise_known);
}

void climb(Codes<double> z2, Codes<double> count, Out<double> x) {  // x, lower and upper bounds
  const std::size_t b = z2.shape(1);
  if (z2.shape(0) != 1 || count.shape(0) != 1 || count.shape(1) != b || x.shape(0) != 3 || x.shape(1) != 3)
    throw std::invalid_argument("a law of one atom has three parameters, and bounds for each");
  nb::gil_scoped_release release;
  chosen->climb(Histogram{z2.data(), count.data(), 1, b}, x.data(), x.data() + 3, x.data() + 6);
}

// `crossed` has no rows where it is to be a product of means.
void find_pair_angles(Codes<double> C, Codes<double> crossed, Row<double> slope, Row<double> z2, double weight,
                      double least, double most, Out<double> angles) {
  const std::size_t m = C.shape(0);
  if (C.shape(1) != m || angles.shape(0) != m || angles.shape(1) != m)
    throw std::invalid_argument("there is not one angle for each pair");
  const bool is_known = crossed.shape(0) > 0;
  if (is_known && (crossed.shape(0) != m || crossed.shape(1) != m))
    throw std::invalid_argument("there is not one mean for each pair");
  if (!is_known) {
    check_row(slope, m);
    check_row(z2, m);
  }
  find_angles({C.data(), is_known ? crossed.data() : nullptr, slope.data(), z2.data(), m, weight}, least, most,
              angles.data());
}

using Numbers = nb::ndarray<nb::numpy, double, nb::ndim<3>>;

// Counts and mean squares (2, m, bins) as an array that owns them.
Numbers hand_over(Binned&& found, std::size_t m) {
  auto* kept = new Binned(std::move(found));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Binned*>(p); });
  return Numbers(kept->numbers.data(), {2, m, kept->n_bins}, owner);
}

Numbers bin_codes(Codes<double> Z, int dropped_bits) {
  const std::size_t b = Z.shape(0), m = Z.shape(1);
  Binned found;
  {
    nb::gil_scoped_release release;
    found = count_codes(Z.data(), b, m, dropped_bits);
  }
  return hand_over(std::move(found), m);
}

Numbers bin_squares(Codes<double> z2, Codes<double> weights, int dropped_bits) {
  const std::size_t b = z2.shape(0), m = z2.shape(1);
  if (weights.shape(0) != b || weights.shape(1) != m) throw std::invalid_argument("there is not one weight for each square");
  Binned found;
  {
    nb::gil_scoped_release release;
    found = count_squares(z2.data(), weights.data(), b, m, dropped_bits);
  }
  return hand_over(std::move(found), m);
}

void turn(Codes<double> G, Codes<double> A, Row<double> slope, Row<double> z2, double weight, double least_curvature,
          double max_angle, Out<double> moved) {
  const std::size_t m = A.shape(0);
  for (const auto& each : {std::pair{G.shape(0), G.shape(1)}, {A.shape(0), A.shape(1)}, {moved.shape(0), moved.shape(1)}})
    if (each.first != m || each.second != m) throw std::invalid_argument("there is not one atom for each direction");
  check_row(slope, m);
  check_row(z2, m);
  nb::gil_scoped_release release;
  chosen->turn(Pairs{m, slope.data(), z2.data(), weight, least_curvature, max_angle}, G.data(), A.data(), moved.data());
}

void atom_errors(Row<double> gz, Row<double> g2, Row<double> slope, Row<double> z2, double n_samples,
                 nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu> errors) {
  const std::size_t m = errors.shape(0);
  for (const auto* row : {&gz, &g2, &slope, &z2}) check_row(*row, m);
  chosen->atom_errors(Moments{m, gz.data(), g2.data(), slope.data(), z2.data()}, n_samples, errors.data());
}

NB_MODULE(_kernels, module) {
  module.doc() = "Kernels that read the codes of a tile once; elldict.backend.host_kernels calls them.";
  module.def("instructions", [] { return std::string(chosen->name); }, "Instruction set in use.");
  module.def("use_instructions", [](const std::string& name) { chosen = &find_kernels(name); },
             "Use an instruction set by name; the widest for an empty one.");
  module.def("descend", descend, exact("z2"), exact("count"), exact("law"), nb::arg("least"), nb::arg("rounds"),
             nb::arg("close"), nb::arg("noise_known"));
  module.def("climb", climb, exact("z2"), exact("count"), exact("x"));
  module.def("find_angles", find_pair_angles, exact("C"), exact("crossed"), exact("slope"), exact("z2"),
             nb::arg("weight"), nb::arg("least"), nb::arg("most"), exact("angles"));
  module.def("bin_codes", bin_codes, exact("Z"), nb::arg("dropped_bits"));
  module.def("bin_squares", bin_squares, exact("z2"), exact("weights"), nb::arg("dropped_bits"));
  module.def("turn", turn, exact("G"), exact("A"), exact("slope"), exact("z2"), nb::arg("weight"),
             nb::arg("least_curvature"), nb::arg("max_angle"), exact("moved"));
  module.def("atom_errors", atom_errors, exact("gz"), exact("g2"), exact("slope"), exact("z2"), nb::arg("n_samples"),
             exact("errors"));
  add_functions<float>(module);
  add_functions<double>(module);
}
