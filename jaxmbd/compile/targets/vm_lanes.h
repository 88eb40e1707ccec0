/* The interpreter for numbers of type T and LANES instances side by side. M(f) is the function of `math.h` for T. A
   remainder of at most FEW instances of a batch is left to the interpreter NARROW, which has fewer lanes. */

#if LANES == 1
typedef T JOIN(V, NAME);
#define V JOIN(V, NAME)
#define EACH(x, e) x = (e)
#define AT(x) (x)
#define LANE 0
#else
typedef T JOIN(V, NAME) __attribute__((vector_size(LANES * sizeof(T)), aligned(LANES * sizeof(T))));
#define V JOIN(V, NAME)
#define EACH(x, e) for (int l = 0; l < LANES; l++) (x)[l] = (e)
#define AT(x) ((x)[l])
#define LANE l
#endif
#define CHOICE(c, a, b) ((c) ? (a) : (b))

#define UNARY(OP, e)                                   \
  case OP:                                             \
    for (int32_t i = 0; i < n; i++, t += 2) {          \
      const V a = x[t[1]];                             \
      V r = a;                                           \
      EACH(r, e);                                      \
      x[t[0]] = r;                                     \
    }                                                  \
    break;
#define BINARY(OP, e)                                  \
  case OP:                                             \
    for (int32_t i = 0; i < n; i++, t += 3) {          \
      const V a = x[t[1]], b = x[t[2]];                \
      V r = a;                                           \
      EACH(r, e);                                      \
      x[t[0]] = r;                                     \
    }                                                  \
    break;
#define TERNARY(OP, e)                                 \
  case OP:                                             \
    for (int32_t i = 0; i < n; i++, t += 4) {          \
      const V a = x[t[1]], b = x[t[2]], c = x[t[3]];   \
      V r = a;                                           \
      EACH(r, e);                                      \
      x[t[0]] = r;                                     \
    }                                                  \
    break;
#define WHOLE(OP, arity, e)                                               \
  case OP:                                                                \
    for (int32_t i = 0; i < n; i++, t += arity + 1) x[t[0]] = e;          \
    break;
/* The first operand is uniform: where the uniform prefix was run once for the batch, a scalar `s` for all lanes. */
#define UNIFORM(OP, arity, shared, e)                                      \
  case OP:                                                                \
    if (s)                                                                \
      for (int32_t i = 0; i < n; i++, t += arity + 1) x[t[0]] = shared;   \
    else                                                                  \
      for (int32_t i = 0; i < n; i++, t += arity + 1) x[t[0]] = e;        \
    break;
#define FUNCTION(OP, f) UNARY(OP, M(f)(AT(a)))

/* sin(a + shift π/2), by argument reduction to [−π/4, π/4] and the polynomials of fdlibm: the error is at most 1 unit in
   the last place for |a| up to 1e5; beyond, the functions of the C library are used. */
static inline V JOIN(sine, NAME)(const V a, const int shift) {
#if LANES == 1
  return shift ? M(cos)(a) : M(sin)(a);
#else
  const int wide = sizeof(T) == 8;
  const T p1 = wide ? 1.57079632673412561417e+00 : 1.5703125, p2 = wide ? 6.07710050630396597660e-11 : 4.837512969970703e-4,
          p3 = wide ? 2.02226624879595063154e-21 : 7.549789948768648e-8;
  V r;
  int far = 0;
  for (int l = 0; l < LANES; l++) far |= !(M(fabs)(a[l]) < (wide ? (T)1e5 : (T)1e3));
  if (far) {
    for (int l = 0; l < LANES; l++) r[l] = shift ? M(cos)(a[l]) : M(sin)(a[l]);
    return r;
  }
  T sign[LANES], odd[LANES];
  for (int l = 0; l < LANES; l++) {
    const T k = M(rint)(a[l] * (T)6.36619772367581382433e-01);
    const T q = k + shift, half = M(floor)(q * (T)0.5);
    r[l] = ((a[l] - k * p1) - k * p2) - k * p3;
    odd[l] = q - 2 * half;                                      /* 0 or 1: sine or cosine of the remainder */
    sign[l] = 1 - 2 * (half - 2 * M(floor)(half * (T)0.5));
  }
  const V z = r * r;
  const V s = r + r * z * ((T)-1.66666666666666324348e-01 + z * ((T)8.33333333332248946124e-03 +
              z * ((T)-1.98412698298579493134e-04 + z * ((T)2.75573137070700676789e-06 +
              z * ((T)-2.50507602534068634195e-08 + z * (T)1.58969099521155010221e-10)))));
  const V h = (T)0.5 * z, w = (T)1 - h;
  const V c = w + ((((T)1 - w) - h) + z * z * ((T)4.16666666666666019037e-02 + z * ((T)-1.38888888888741095749e-03 +
              z * ((T)2.48015872894767294178e-05 + z * ((T)-2.75573143513906633035e-07 +
              z * ((T)2.08757232129817482790e-09 - z * (T)1.13596475577881948265e-11))))));
  for (int l = 0; l < LANES; l++) r[l] = sign[l] * (odd[l] != 0 ? c[l] : s[l]);
  return r;
#endif
}

/* The elements of an input for an instance; lanes beyond the last instance repeat it. */
static inline const T *JOIN(of, NAME)(const Call *c, const int64_t input, const int64_t instance) {
  const int64_t size = c->program->input_sizes[input], at = instance < c->batch ? instance : c->batch - 1;
  return (const T *)c->inputs[input] + (c->sizes[input] == size ? 0 : size * at);
}

/* The element of table `k` at an index, which is clamped into the table. */
static inline T JOIN(gather, NAME)(const Call *c, const int32_t k, const T index, const int64_t instance) {
  const int32_t *table = c->program->gathers + 4 * (int64_t)k;
  const int64_t length = table[3];
  const int64_t at = !(index > 0) ? 0 : index < (T)length ? (int64_t)index : length - 1; /* NaN becomes 0 */
  return JOIN(of, NAME)(c, table[0], instance)[table[1] + table[2] * at];
}

static void JOIN(execute, NAME)(const int32_t *code, const int32_t *end, V *restrict x, const T *restrict s,
                                const Call *c, const int64_t first) {
  while (code < end) {
    const int32_t op = code[0], n = code[1];
    const int32_t *t = code + 2;
    switch (op) {
      WHOLE(ADD, 2, x[t[1]] + x[t[2]])
      WHOLE(SUB, 2, x[t[1]] - x[t[2]])
      WHOLE(MUL, 2, x[t[1]] * x[t[2]])
      WHOLE(DIV, 2, x[t[1]] / x[t[2]])
      WHOLE(FMA, 3, x[t[1]] * x[t[2]] + x[t[3]])
      WHOLE(FMS, 3, x[t[1]] * x[t[2]] - x[t[3]])
      WHOLE(FNMA, 3, x[t[3]] - x[t[1]] * x[t[2]])
      UNIFORM(UMUL, 2, s[t[1]] * x[t[2]], x[t[1]] * x[t[2]])
      UNIFORM(UFMA, 3, s[t[1]] * x[t[2]] + x[t[3]], x[t[1]] * x[t[2]] + x[t[3]])
      UNIFORM(UFMS, 3, s[t[1]] * x[t[2]] - x[t[3]], x[t[1]] * x[t[2]] - x[t[3]])
      UNIFORM(UFNMA, 3, x[t[3]] - s[t[1]] * x[t[2]], x[t[3]] - x[t[1]] * x[t[2]])
      WHOLE(NEG, 1, -x[t[1]])
      BINARY(MAX, CHOICE(AT(a) > AT(b) || AT(a) != AT(a), AT(a), AT(b)))
      BINARY(MIN, CHOICE(AT(a) < AT(b) || AT(a) != AT(a), AT(a), AT(b)))
      TERNARY(SELECT, CHOICE(AT(a) != 0, AT(b), AT(c)))
      BINARY(EQ, AT(a) == AT(b))
      BINARY(NE, AT(a) != AT(b))
      BINARY(LT, AT(a) < AT(b))
      BINARY(LE, AT(a) <= AT(b))
      BINARY(AND, AT(a) != 0 && AT(b) != 0)
      BINARY(OR, AT(a) != 0 || AT(b) != 0)
      UNARY(NOT, AT(a) == 0)
      UNARY(IS_FINITE, AT(a) - AT(a) == 0)
      FUNCTION(SQRT, sqrt)
      FUNCTION(ABS, fabs)
      UNARY(SIGN, AT(a) != AT(a) ? AT(a) : (T)((AT(a) > 0) - (AT(a) < 0)))
      WHOLE(SIN, 1, JOIN(sine, NAME)(x[t[1]], 0))
      WHOLE(COS, 1, JOIN(sine, NAME)(x[t[1]], 1))
      FUNCTION(FLOOR, floor)
      FUNCTION(CEIL, ceil)
      FUNCTION(ROUND, rint)
      FUNCTION(ROUND_AWAY, round)
      FUNCTION(TAN, tan)
      FUNCTION(ASIN, asin)
      FUNCTION(ACOS, acos)
      FUNCTION(ATAN, atan)
      BINARY(ATAN2, M(atan2)(AT(a), AT(b)))
      FUNCTION(SINH, sinh)
      FUNCTION(COSH, cosh)
      FUNCTION(TANH, tanh)
      FUNCTION(ASINH, asinh)
      FUNCTION(ACOSH, acosh)
      FUNCTION(ATANH, atanh)
      FUNCTION(EXP, exp)
      FUNCTION(EXP2, exp2)
      FUNCTION(EXPM1, expm1)
      FUNCTION(LOG, log)
      FUNCTION(LOG1P, log1p)
      FUNCTION(CBRT, cbrt)
      FUNCTION(ERF, erf)
      FUNCTION(ERFC, erfc)
      BINARY(POW, M(pow)(AT(a), AT(b)))
      BINARY(REM, M(fmod)(AT(a), AT(b)))
      case GATHER:
        for (int32_t i = 0; i < n; i++, t += 3) {
          const V a = x[t[1]];
          V r = a;
          EACH(r, JOIN(gather, NAME)(c, t[2], AT(a), first + LANE));
          x[t[0]] = r;
        }
        break;
    }
    code = t;
  }
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
  JOIN(execute, NAME)(p->code, p->code + p->uniform_length, x, NULL, c, 0);
  return x;
}
#endif

/* Runs the instances from `first` up to but not including `last`; returns 0 if there is not enough memory. */
static int JOIN(run, NAME)(const void *call, int64_t first, int64_t last) {
  const Call *c = call;
  const Program *p = c->program;
#ifdef NARROW
  const int64_t rest = (last - first) % LANES;
  if (0 < rest && rest <= FEW) {
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
    for (int64_t k = 0; k < p->inputs; k++) {
      if (c->sizes[k] == p->input_sizes[k]) continue;
      const T *mine[LANES];
      for (int l = 0; l < LANES; l++) mine[l] = JOIN(of, NAME)(c, k, start + l);
      MOVES(m, p->loads, p->input_ends, k)
        for (int l = 0; l < LANES; l++) flat[(int64_t)m[1] * LANES + l] = mine[l][m[0]];
    }
    JOIN(execute, NAME)(p->code + (s ? p->uniform_length : 0), p->code + p->length, x, s, c, start);
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
  if (memory != local) free(memory);
  return 1;
}

#if LANES == 1 || defined(NARROW)
#include "erk_loop.h"
#endif

#undef MOVES
#undef V
#undef EACH
#undef AT
#undef LANE
#undef CHOICE
#undef UNARY
#undef BINARY
#undef TERNARY
#undef WHOLE
#undef UNIFORM
#undef FUNCTION
#undef LANES
#undef NAME
#undef FEW
#undef NARROW
