// g_i = A_i'(A_i x_i - b_i) for all nodes i, reading every row of A_i once: x, g [m, n], A [m, q, n], b [m, q].
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static void Nodes(const float* x, const float* A, const float* b, float* g, int64_t q, int64_t n, int64_t count) {
  for (int64_t i = 0; i < count; ++i, x += n, g += n, b += q) {
    std::fill(g, g + n, 0.0f);
    for (int64_t t = 0; t < q;) {  // four rows at a time, so that x and g are read less often
      const int64_t rows = t + 4 <= q ? 4 : 1;
      if (rows == 4) {
        const float *a0 = A, *a1 = A + n, *a2 = A + 2 * n, *a3 = A + 3 * n;
        float r0 = 0, r1 = 0, r2 = 0, r3 = 0;
#pragma omp simd reduction(+ : r0, r1, r2, r3)
        for (int64_t j = 0; j < n; ++j) {
          r0 += a0[j] * x[j];
          r1 += a1[j] * x[j];
          r2 += a2[j] * x[j];
          r3 += a3[j] * x[j];
        }
        r0 -= b[t], r1 -= b[t + 1], r2 -= b[t + 2], r3 -= b[t + 3];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) g[j] += r0 * a0[j] + r1 * a1[j] + r2 * a2[j] + r3 * a3[j];
      } else {
        float r = -b[t];
#pragma omp simd reduction(+ : r)
        for (int64_t j = 0; j < n; ++j) r += A[j] * x[j];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) g[j] += r * A[j];
      }
      t += rows;
      A += rows * n;
    }
  }
}

static ffi::Error Run(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> A, ffi::Buffer<ffi::F32> b,
                      ffi::ResultBuffer<ffi::F32> g) {
  const auto size = A.dimensions();
  const int64_t m = size[0], q = size[1], n = size[2], parts = std::min<int64_t>(pool.num_threads(), m);
  std::mutex lock;
  std::condition_variable done;
  int64_t left = parts - 1;
  auto part = [&](int64_t p) {
    const int64_t i = m * p / parts, end = m * (p + 1) / parts;
    Nodes(x.typed_data() + i * n, A.typed_data() + i * q * n, b.typed_data() + i * q, g->typed_data() + i * n, q, n,
          end - i);
  };
  for (int64_t p = 1; p < parts; ++p) {
    pool.Schedule([&, p] {
      part(p);
      std::lock_guard<std::mutex> held(lock);
      if (--left == 0) done.notify_one();
    });
  }
  part(0);
  std::unique_lock<std::mutex> held(lock);
  done.wait(held, [&] { return left == 0; });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(LeastSquares, Run,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
