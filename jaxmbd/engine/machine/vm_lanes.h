/* The interpreter for the numbers of `lanes.h`. A remainder of at most FEW instances of a batch is left to the interpreter
   NARROW, which has fewer lanes. KERNEL: that of `program.h` for these lanes, if straight-line code is made for them. */

#include "lanes.h"
#include "operands.h"

#define LANE_OF(v, l) (((T *)&(v))[l])
#define EACH_LANE for (int l = 0; l < LANES; l++)

#define SLOT uint16_t
#define EXECUTE JOIN(execute_short, NAME)
#include "instructions.h"
#define SLOT int32_t
#define EXECUTE JOIN(execute_long, NAME)
#include "instructions.h"

/* Runs a part of the code of a program. Short slots are half as long to read: the code of a large program is longer than
   a processor's caches, from which it is read anew each time. */
static void JOIN(execute, NAME)(const Program *p, int64_t begin, int64_t end, V *restrict x, const T *restrict s,
                                const Call *c, const int64_t *instances) {
  if (p->short_code) JOIN(execute_short, NAME)(p->short_code + begin, p->short_code + end, x, s, c, instances);
  else JOIN(execute_long, NAME)(p->code + begin, p->code + end, x, s, c, instances);
}

/* The straight-line code of a program for these lanes, NULL if there is none or it must not be used. */
static inline StraightLine *JOIN(straight_line, NAME)(const Call *c) {
#ifdef KERNEL
  if (!c->interpreted) return atomic_load_explicit(&c->program->native->run[KERNEL], memory_order_acquire);
#endif
  return NULL;
}

/* Runs the part of a program after its uniform prefix: by straight-line code as soon as that is installed. `s`: the slots
   after the prefix, if it was run once for all lanes; straight-line code reads none. */
static inline void JOIN(vary, NAME)(const Call *c, V *restrict x, const T *restrict s, const int64_t *instances) {
  const Program *p = c->program;
  StraightLine *run = JOIN(straight_line, NAME)(c);
  if (run) run(x, c, instances);
  else JOIN(execute, NAME)(p, p->uniform_length, p->length, x, s, c, instances);
}

/* What runs the part of a program after its uniform prefix now. */
static inline int64_t JOIN(engine, NAME)(const Call *c) {
  return JOIN(straight_line, NAME)(c) ? STRAIGHT_LINE : INTERPRETER;
}

/* Counts evaluations by the interpreter. */
static inline void JOIN(count, NAME)(const Call *c, const int64_t evaluations) {
#ifdef KERNEL
  if (!JOIN(straight_line, NAME)(c)) count_evaluations(c->program, KERNEL, evaluations);
#endif
}

/* A loop over the pairs (element, slot) of one input or output. */
#define MOVES(m, all, ends, k) \
  for (const int32_t *m = all + 2 * (k ? ends[k - 1] : 0), *m##_end = all + 2 * ends[k]; m < m##_end; m += 2)

/* Loads the uniform slots of all lanes: those live out of the uniform prefix, `s`, or without it the constants; and the
   uniform inputs. */
static void JOIN(load, NAME)(const Call *c, T *flat, const T *s) {
  const Program *p = c->program;
  for (int64_t k = 0; s && k < p->carries; k++)
    for (int l = 0; l < LANES; l++) flat[(int64_t)p->uniform_live_out[k] * LANES + l] = s[p->uniform_live_out[k]];
  for (int64_t k = 0; !s && k < p->constants; k++)
    for (int l = 0; l < LANES; l++) flat[k * LANES + l] = (T)p->constant[k];
  for (int64_t k = s ? p->uniform_inputs : 0; k < p->inputs; k++) {
    if (c->sizes[k] != p->input_sizes[k]) continue;
    const T *in = c->inputs[k];
    MOVES(m, p->loads, p->input_ends, k)
      for (int l = 0; l < LANES; l++) flat[(int64_t)m[1] * LANES + l] = in[m[0]];
  }
}

#if LANES == 1
/* Runs the uniform prefix of a program and returns its slots, which the caller frees. NULL if there is no prefix or not
   enough memory: then every lane runs the prefix. */
static void *JOIN(common, NAME)(const Call *c) {
  const Program *p = c->program;
  if (!p->uniform_length) return NULL;
  for (int64_t k = 0; k < p->uniform_inputs; k++)
    if (c->sizes[k] != p->input_sizes[k]) return NULL;
  T *x = malloc((size_t)p->slots * sizeof(T) + 64);
  if (!x) return NULL;
  JOIN(load, NAME)(c, x, NULL);
  JOIN(execute, NAME)(p, 0, p->uniform_length, x, NULL, c, (const int64_t[]){0});
  return x;
}
#endif

/* Runs the instances from `first` up to but not including `last`; returns 0 if there is not enough memory. */
static int JOIN(run, NAME)(const void *call, int64_t first, int64_t last) {
  const Call *c = call;
  const Program *p = c->program;
#ifdef NARROW
  const int64_t rest = (last - first) % LANES;
  if (0 < rest && rest <= FEW && !JOIN(straight_line, NAME)(c)) {
    last -= rest;
    if (!JOIN(run, NARROW)(c, last, last + rest)) return 0;
  }
  if (first == last) return 1;
#endif
  const size_t bytes = (size_t)p->slots * sizeof(V);
  /* The slots of small programs are on the stack, which is likely to be in the cache. */
  char local[65536 + 64];
  char *memory = bytes <= 65536 ? local : malloc(bytes + 64);
  if (!memory) return 0;
  V *x = (V *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
  T *flat = (T *)x;
  const T *s = c->common;
  JOIN(load, NAME)(c, flat, s);
  for (int64_t start = first; start < last; start += LANES) {
    int64_t instances[LANES];
    EACH_LANE instances[l] = start + l;
    for (int64_t k = 0; k < p->inputs; k++) {
      if (c->sizes[k] == p->input_sizes[k]) continue;
      const T *mine[LANES];
      for (int l = 0; l < LANES; l++) mine[l] = JOIN(of, NAME)(c, k, instances[l]);
      MOVES(m, p->loads, p->input_ends, k)
        for (int l = 0; l < LANES; l++) flat[(int64_t)m[1] * LANES + l] = mine[l][m[0]];
    }
    if (!s) JOIN(execute, NAME)(p, 0, p->uniform_length, x, NULL, c, instances);
    JOIN(vary, NAME)(c, x, s, instances);
    const int64_t valid = last - start < LANES ? last - start : LANES;
    for (int64_t k = 0; k < p->outputs; k++) {
      const int64_t size = p->output_sizes[k];
      const int together = c->sizes[p->inputs + k] == size;
      if (together && start > 0) continue;
      T *mine = (T *)c->outputs[k] + size * start;
      MOVES(m, p->stores, p->output_ends, k)
        for (int64_t l = 0; l < (together ? 1 : valid); l++) mine[size * l + m[0]] = flat[(int64_t)m[1] * LANES + l];
    }
  }
  JOIN(count, NAME)(c, (last - first + LANES - 1) / LANES);
  if (memory != local) free(memory);
  return 1;
}

#ifdef KERNEL
#include "erk_slots.h"
#include "irk_steps.h"
#include "closing.h"
#include "erk_loop.h"
#include "erk_sweeps.h"

/* Defines `name`, which runs the instances from `first` up to but not including `last` by `lanes`, so many side by side;
   returns 0 if there is not enough memory. */
#define IN_LANES(name, lanes)                                                                        \
  static int JOIN(name, NAME)(const void *motion, int64_t first, int64_t last) {                     \
    for (int64_t start = first; start < last; start += LANES) {                                      \
      int64_t instances[LANES];                                                                      \
      EACH_LANE instances[l] = start + l;                                                            \
      if (!JOIN(lanes, NAME)(motion, instances, last - start < LANES ? last - start : LANES)) return 0; \
    }                                                                                                \
    return 1;                                                                                        \
  }

IN_LANES(tangents, sweep_tangents)
IN_LANES(cotangents, sweep_cotangents)
#endif

#undef MOVES
#undef LANE_OF
#undef EACH_LANE
#undef IN_LANES
#undef V
#undef EACH
#undef AT
#undef LANE
#undef CHOICE
#undef TRUTH
#undef BOTH
#undef EITHER
#undef UNARY
#undef BINARY
#undef TERNARY
#undef UNARY_EACH
#undef BINARY_EACH
#undef LIBRARY
#undef ALL
#undef HORNER
#undef KERNEL
#undef LANES
#undef NAME
#undef NARROW
