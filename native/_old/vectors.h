// Vectors of one instruction set, VARIANT, for the files that are compiled once for each. All have the same names, in a
// namespace without one: nothing of one variant may end up in another.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define QUOTE_(x) #x
#define QUOTE(x) QUOTE_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace elldict {
namespace {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

template <class T> struct Types;
template <> struct Types<float> {
  typedef float V __attribute__((vector_size(VECTOR_BYTES)));
  typedef std::int32_t I __attribute__((vector_size(VECTOR_BYTES)));
  typedef std::int32_t Int;
};
template <> struct Types<double> {
  typedef double V __attribute__((vector_size(VECTOR_BYTES)));
  typedef std::int64_t I __attribute__((vector_size(VECTOR_BYTES)));
  typedef std::int64_t Int;
};
template <class T> using V = typename Types<T>::V;
template <class T> using I = typename Types<T>::I;
template <class T> constexpr int LANES = VECTOR_BYTES / sizeof(T);

template <class T> inline V<T> load(const T* from) {
  V<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T> inline void store(T* to, V<T> v) { std::memcpy(to, &v, sizeof v); }
template <class T> inline V<T> fill(T x) { return V<T>{} + x; }

template <class T> inline V<T> magnitude(V<T> x) {
  typedef typename Types<T>::Int Int;
  return (V<T>)((I<T>)x & static_cast<Int>(~(Int(1) << (8 * sizeof(Int) - 1))));
}

template <class T> inline V<T> root(V<T> x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) return (V<T>)_mm512_sqrt_ps((__m512)x);
  else return (V<T>)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, float>) return (V<T>)_mm256_sqrt_ps((__m256)x);
  else return (V<T>)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
  if constexpr (std::is_same_v<T, float>) return (V<T>)_mm_sqrt_ps((__m128)x);
  else return (V<T>)_mm_sqrt_pd((__m128d)x);
#else
  for (int i = 0; i < LANES<T>; ++i) x[i] = sizeof(T) == 4 ? __builtin_sqrtf(x[i]) : __builtin_sqrt(x[i]);
  return x;
#endif
}

#if defined(__SSE2__)
// A vector of parts of four numbers.
inline V<float> join(const __m128* parts) {
#if defined(__AVX512F__)
  __m512 all = _mm512_castps128_ps512(parts[0]);
  all = _mm512_insertf32x4(all, parts[1], 1);
  all = _mm512_insertf32x4(all, parts[2], 2);
  return (V<float>)_mm512_insertf32x4(all, parts[3], 3);
#elif defined(__AVX2__)
  return (V<float>)_mm256_insertf128_ps(_mm256_castps128_ps256(parts[0]), parts[1], 1);
#else
  return (V<float>)parts[0];
#endif
}
#endif

// A polynomial of x with these coefficients, the lowest first, by Estrin's scheme: half the products wait for no other.
template <class T, int N> inline V<T> polynomial(V<T> x, const T (&c)[N]) {
  V<T> part[(N + 1) / 2];
  for (int i = 0; i < N / 2; ++i) part[i] = x * c[2 * i + 1] + c[2 * i];
  if (N % 2) part[N / 2] = fill<T>(c[N - 1]);
  for (int n = (N + 1) / 2; n > 1; n = (n + 1) / 2) {
    x = x * x;
    for (int i = 0; i < n / 2; ++i) part[i] = part[2 * i + 1] * x + part[2 * i];
    if (n % 2) part[n / 2] = part[n - 1];
  }
  return part[0];
}

// e^x for x <= 0: 2^k times a Taylor series of |r| <= log(2) / 2. It stays above the smallest normal numbers, which are slow.
inline V<float> exp_negative(V<float> x) {
  static constexpr float series[] = {1.0f, 1.0f, 0.5f, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};
  const V<float> least = fill<float>(-80.0f);
  x = x < least ? least : x;
  const float magic = 12582912.0f;  // 1.5 * 2^23: the sum has the nearest whole number in its last bits
  const V<float> t = x * 1.44269504f + magic, k = t - magic;
  const V<float> r = (x - k * 0.693359375f) - k * -2.12194440e-4f;  // log 2 in two parts, the first of few digits
  return polynomial<float>(r, series) * (V<float>)(((I<float>)t << 23) + 0x3f800000);
}

inline V<double> exp_negative(V<double> x) {
  static constexpr double series[] = {1.0,        1.0,         0.5,          1.0 / 6,       1.0 / 24,
                                      1.0 / 120,  1.0 / 720,   1.0 / 5040,   1.0 / 40320,   1.0 / 362880,
                                      1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  const V<double> least = fill<double>(-700.0);
  x = x < least ? least : x;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const V<double> t = x * 1.4426950408889634 + magic, k = t - magic;
  const V<double> r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  return polynomial<double>(r, series) * (V<double>)(((I<double>)t << 52) + (std::int64_t(1023) << 52));
}

// log(1 + e) for 0 <= e <= 1, as 2 atanh(s) by its series, |s| <= 0.172; above sqrt(2) - 1 with log 2 taken out.
inline V<double> log_1_plus(V<double> e) {
  static constexpr double series[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                      2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const double limit = 0.41421356237309503;
  const V<double> f = e > limit ? (e - 1.0) * 0.5 : e, s = f / (f + 2.0), size = magnitude<double>(s);
  // below 1e-10 the series is 2 to all digits, and powers of s are too small for normal numbers, and slow
  const V<double> least = fill<double>(1e-10), large = size > least ? size : least;
  const V<double> y = polynomial<double>(large * large, series) * s;
  return e > limit ? y + 0.69314718055994530942 : y;
}

}  // namespace
}  // namespace elldict
