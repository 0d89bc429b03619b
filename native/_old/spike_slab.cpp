// Fits of the spike-and-slab law of codes: expectation maximisation as `run_em` of elldict.solver.spike_slab has it, and
// the maximum of the likelihood of one law, as `climb_likelihood` finds it.
#include <cmath>

#include "tile.h"
#include "vectors.h"

namespace elldict {
namespace {

constexpr int WIDTH = 8, N_PARTS = WIDTH / LANES<double>;  // sums in eight lanes: the same bits for every instruction set
constexpr double LEAST_DENSITY = 1e-4;

// Sums over the codes of one atom, each weighted by the probability that it is active, or idle.
struct Sums {
  double active, active_square, idle_square, number;
  double value;  // log-likelihood
};

// Log density of a code of one kind, active or idle: level - rate z^2.
struct Density {
  double level, rate;
};

double add_lanes(const V<double>* parts) {
  double lanes[WIDTH];
  std::memcpy(lanes, parts, sizeof lanes);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// The log odds that a code is active are offset + rate z^2.
template <bool WITH_VALUE>
Sums sum_bins(const double* z2, const double* count, std::size_t b, double offset, double rate, Density active_law = {},
              Density idle_law = {}) {
  const V<double> zero = fill<double>(0.0);
  V<double> active[N_PARTS] = {}, active_square[N_PARTS] = {}, idle_square[N_PARTS] = {}, number[N_PARTS] = {};
  V<double> value[N_PARTS] = {};
  for (std::size_t k = 0; k < b; k += WIDTH) {
    double squares[WIDTH] = {}, counts[WIDTH] = {};
    const bool whole = k + WIDTH <= b;
    if (!whole) {
      std::memcpy(squares, z2 + k, (b - k) * sizeof(double));
      std::memcpy(counts, count + k, (b - k) * sizeof(double));
    }
    for (int part = 0; part < N_PARTS; ++part) {
      const std::size_t at = part * LANES<double>;
      const V<double> square = load(whole ? z2 + k + at : squares + at);
      const V<double> weight = load(whole ? count + k + at : counts + at);
      const V<double> odds = square * rate + offset, e = exp_negative(-magnitude<double>(odds));
      const V<double> share = weight / (e + 1.0), rest = share * e;
      const V<double> here = odds < zero ? rest : share, idle = odds < zero ? share : rest;
      active[part] += here;
      active_square[part] += here * square;
      idle_square[part] += idle * square;
      number[part] += weight;
      if constexpr (WITH_VALUE) {  // from the likelier of both, so that nothing cancels
        const V<double> larger = odds < zero ? idle_law.level - idle_law.rate * square
                                             : active_law.level - active_law.rate * square;
        value[part] += weight * (larger + log_1_plus(e));
      }
    }
  }
  return {add_lanes(active), add_lanes(active_square), add_lanes(idle_square), add_lanes(number), add_lanes(value)};
}

double limit(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// One round for one atom; whether density or noise changed by more than the share `close`.
bool step(const double* z2, const double* count, std::size_t b, double& density, double& power, double& noise,
          double least, double close, bool noise_known) {
  const double whole = power + noise, kept = power / whole;
  const double offset = std::log(density) - std::log1p(-density) - 0.5 * std::log(whole / noise);
  const Sums sums = sum_bins<false>(z2, count, b, offset, 0.5 * (1 / noise - 1 / whole));
  // a code given z and activity has mean kept z and variance kept noise
  const double blur = kept * noise * sums.active, old_density = density, old_noise = noise;
  const double fitted = (sums.idle_square + (1 - kept) * (1 - kept) * sums.active_square + blur) / sums.number;
  const double number = sums.active > 1e-300 ? sums.active : 1e-300;
  const double new_power = (kept * kept * sums.active_square + blur) / number;
  density = limit(sums.active / sums.number, LEAST_DENSITY, 1 - LEAST_DENSITY);
  power = new_power < least ? least : new_power;
  if (!noise_known) noise = fitted < least ? least : fitted;
  return std::fabs(noise - old_noise) > close * old_noise || std::fabs(density - old_density) > close * old_density;
}

// Minus the mean log-likelihood of codes by the log odds of the density, the log power and the log noise; and its gradient.
double evaluate(const Histogram& codes, const double* x, double* gradient) {
  const double density = 1 / (1 + std::exp(-x[0])), power = std::exp(x[1]), noise = std::exp(x[2]);
  const double whole = power + noise, offset = x[0] - 0.5 * std::log(whole / noise);
  const double tau = 2 * 3.14159265358979323846;
  const Density active{std::log(density) - 0.5 * std::log(tau * whole), 0.5 / whole};
  const Density inactive{std::log1p(-density) - 0.5 * std::log(tau * noise), 0.5 / noise};
  const double rate = 0.5 * (1 / noise - 1 / whole);
  const Sums sums = sum_bins<true>(codes.z2, codes.count, codes.b, offset, rate, active, inactive);
  const double idle = sums.number - sums.active;
  const double by_whole = 0.5 * (sums.active_square / whole - sums.active) / whole;
  const double by_noise = 0.5 * (sums.idle_square / noise - idle) / noise;
  gradient[0] = -(sums.active - density * sums.number) / sums.number;
  gradient[1] = -power * by_whole / sums.number;
  gradient[2] = -noise * (by_noise + by_whole) / sums.number;
  return -sums.value / sums.number;
}

constexpr int N = 3, MOST_STEPS = 200, MOST_HALVINGS = 30;
constexpr double LEAST_GRADIENT = 1e-5, LEAST_FALL = 1e-10;  // where the climb ends; that of SciPy's L-BFGS ends at 2e-9

double dot(const double* a, const double* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// Inverse of the curvature, learned from steps; unit at first.
struct Curvature {
  double H[N][N];
  bool learned;
  void forget() {
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) H[i][j] = i == j;
    learned = false;
  }
  // the update of Broyden, Fletcher, Goldfarb and Shanno for a step s along which the gradient changed by y
  void learn(const double* s, const double* y) {
    const double sy = dot(s, y);
    if (!(sy > 1e-14)) return;
    if (!learned)
      for (int i = 0; i < N; ++i) H[i][i] = sy / dot(y, y);
    double Hy[N];
    for (int i = 0; i < N; ++i) Hy[i] = dot(H[i], y);
    const double yHy = dot(y, Hy);
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) H[i][j] += (1 + yHy / sy) * s[i] * s[j] / sy - (Hy[i] * s[j] + s[i] * Hy[j]) / sy;
    learned = true;
  }
};

// Direction to go at the gradient g, among parameters that are free to move; the largest component of a plain step.
double aim(const double* x, const double* g, const double* low, const double* high, Curvature& curvature,
           unsigned& free_before, double* d) {
  unsigned free = 0;
  double largest = 0;
  for (int i = 0; i < N; ++i) {
    if (!((x[i] <= low[i] && g[i] > 0) || (x[i] >= high[i] && g[i] < 0))) free |= 1u << i;
    const double moved = std::fabs(limit(x[i] - g[i], low[i], high[i]) - x[i]);
    largest = moved > largest ? moved : largest;
  }
  if (free != free_before) curvature.forget();
  free_before = free;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int i = 0; i < N; ++i) {
      d[i] = 0;
      if (free >> i & 1)
        for (int j = 0; j < N; ++j) d[i] -= free >> j & 1 ? curvature.H[i][j] * g[j] : 0.0;
    }
    if (dot(d, g) < 0) break;
    curvature.forget();
  }
  return largest;
}

}  // namespace

void JOIN(climb_, VARIANT)(const Histogram& codes, double* x, const double* low, const double* high) {
  double g[N], d[N], next[N], next_g[N];
  for (int i = 0; i < N; ++i) x[i] = limit(x[i], low[i], high[i]);
  double f = evaluate(codes, x, g);
  Curvature curvature;
  curvature.forget();
  unsigned free = 7;
  for (int n = 0; n < MOST_STEPS; ++n) {
    if (!(aim(x, g, low, high, curvature, free, d) > LEAST_GRADIENT)) return;
    const double length = std::sqrt(dot(d, d));
    double t = curvature.learned || length < 1 ? 1.0 : 1 / length, next_f = f, fall = 0;
    int halvings = 0;
    for (; halvings < MOST_HALVINGS; ++halvings, t /= 2) {
      for (int i = 0; i < N; ++i) next[i] = limit(x[i] + t * d[i], low[i], high[i]);
      next_f = evaluate(codes, next, next_g);
      fall = 0;
      for (int i = 0; i < N; ++i) fall -= g[i] * (next[i] - x[i]);
      if (next_f <= f - 1e-4 * fall) break;
    }
    if (halvings == MOST_HALVINGS) {
      if (!curvature.learned) return;
      curvature.forget();
      continue;
    }
    double s[N], y[N];
    for (int i = 0; i < N; ++i) {
      s[i] = next[i] - x[i];
      y[i] = next_g[i] - g[i];
      x[i] = next[i];
      g[i] = next_g[i];
    }
    curvature.learn(s, y);
    const double size = std::fabs(f) > 1 ? std::fabs(f) : 1.0;
    const bool done = f - next_f <= LEAST_FALL * size;
    f = next_f;
    if (done) return;
  }
}

void JOIN(descend_, VARIANT)(const Histogram& codes, Laws laws, int rounds, double close, bool noise_known) {
  for (int round = 0; round < rounds; ++round) {
    bool moved = false;
    for (std::size_t i = 0; i < codes.m; ++i)
      moved |= step(codes.z2 + i * codes.b, codes.count + i * codes.b, codes.b, laws.density[i], laws.power[i],
                    laws.noise[i], laws.least, close, noise_known);
    if (!moved) return;
  }
}

}  // namespace elldict
