/* Programs and their calls, as the virtual machine (`vm.c`) and straight-line code (`straight_line.py`) see them. */

#pragma once

#ifndef __CUDACC_RTC__ /* which has no such files */
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#endif

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

/* Lanes are as many as fit into a vector register of the processor: more would be stored and loaded in each operation. */
#ifndef VECTOR /* [bytes] */
#if defined(__AVX512F__)
#define VECTOR 64
#elif defined(__AVX__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
#endif
#define F64_WIDTH (VECTOR / 8)
#define F32_WIDTH (VECTOR / 4)

typedef struct Program Program;

/* One call. Inputs and outputs larger than their size in the program vary over the instances of the batch, the others are
   uniform; an input that has fewer rows than there are instances varies over blocks of equally many of them. `sizes`: of the
   inputs, then of the outputs. `common`: the slots after the uniform prefix of the program was
   run; NULL if the inputs of that prefix vary. `interpreted`: 1 if straight-line code must not be used. */
typedef struct {
  const Program *program;
  void **inputs, **outputs;
  int64_t *sizes;
  int64_t batch;
  void *common;
  int interpreted;
} Call;

/* The part of a program after its uniform prefix as straight-line code, on slots with a lane for each of some instances. */
typedef void StraightLine(void *slots, const Call *call, const int64_t *instances);

enum { F64_SINGLE, F64_LANES, F32_SINGLE, F32_LANES, KERNELS }; /* the kernels that straight-line code is made for */

typedef struct {
  _Atomic(StraightLine *) run[KERNELS]; /* NULL for none */
  const char *failure[KERNELS];         /* why there is none, if it was asked for in vain */
  atomic_llong evaluations[KERNELS];    /* by the interpreter, of all lanes at once */
} Native;

struct Program {
  uint64_t key;          /* never 0 */
  int64_t slots;         /* the number of slots */
  int64_t constants;     /* the number of constants, which occupy the first slots */
  const double *constant;
  int64_t inputs, outputs;
  const int32_t *input_ends, *output_ends; /* the end of the pairs of each input or output */
  const int32_t *input_sizes, *output_sizes;
  const int32_t *loads, *stores; /* pairs (element, slot) */
  const int32_t *code;
  const uint16_t *short_code; /* the same, NULL if it has larger numbers */
  int64_t length;
  /* The uniform prefix of the code: it depends on the first inputs alone, which the instances of a batch may share. */
  int64_t uniform_length, uniform_inputs, carries;
  const int32_t *uniform_live_out; /* the slots that are live out of the uniform prefix; `carries` is their number */
  const int32_t *gathers; /* of each table that gathers read: input, first element, stride, length */
  Native *native;
};
