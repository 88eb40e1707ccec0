/* The surroundings of the text of a kernel (`erk_kernel.py`): of CUDA, as NVRTC compiles it, or of C for a processor that
   runs one instance after another. */

#pragma once

#ifdef __CUDACC_RTC__

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t, uintptr_t;
typedef long long atomic_llong;
#define _Atomic(type) type
#define restrict __restrict__
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#define __FP_FAST_FMA
#define __builtin_fma fma
#define __builtin_fmaf fmaf
#define SINE_COSINE(a, sine, cosine) M(sincos)(a, sine, cosine)
#define CONSTANT __constant__
#define KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(BLOCK) name(__VA_ARGS__)
#define BUFFERS const __grid_constant__ Buffers
#define ROLLED _Pragma("unroll 1")
#define FOR_EACH_INSTANCE(i, batch)                                             \
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;             \
  if (i < batch)

#else

#include <stddef.h>
#include <string.h>
#define CONSTANT
#define KERNEL(name, ...) void name(__VA_ARGS__)
#define BUFFERS const Buffers
#define ROLLED
#define FOR_EACH_INSTANCE(i, batch) for (int64_t i = 0; i < batch; i++)

#endif

/* A thread has arrays of its own in the place of a workspace. */
#define WORKSPACE(memory, count)
#define ROOM(name, count) V name[(count) > 0 ? (count) : 1];
#define RELEASE(memory)
