/* One machine: numbers of type T, LANES instances side by side. M(f) is the function of `math.h` for T. */

#if LANES == 1
typedef T JOIN(V, NAME);
#define V JOIN(V, NAME)
#define EACH(x, e) x = (e)
#define AT(x) (x)
#define LANE 0
#define CHOICE(c, a, b) ((c) ? (a) : (b))
#define FETCH(arity)
#else
typedef T JOIN(V, NAME) __attribute__((vector_size(LANES * sizeof(T)), aligned(LANES * sizeof(T))));
#define V JOIN(V, NAME)
#define EACH(x, e) for (int l = 0; l < LANES; l++) (x)[l] = (e)
#define AT(x) ((x)[l])
#define LANE l
#define CHOICE(c, a, b) ((c) ? (a) : (b))
/* Lanes fill the caches: their lines are called for 32 operations ahead, the last time from what follows the code. */
#define FETCH(arity) \
  for (int32_t j = 1; j <= arity; j++) __builtin_prefetch(&x[t[j + 32 * (arity + 1)]]);
#endif

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
#define WHOLE(OP, arity, e)                            \
  case OP:                                             \
    for (int32_t i = 0; i < n; i++, t += arity + 1) {  \
      FETCH(arity)                                     \
      x[t[0]] = e;                                     \
    }                                                  \
    break;
#define FUNCTION(OP, f) UNARY(OP, M(f)(AT(a)))

/* sin(a + shift π/2), by reduction to a quarter turn and the polynomials of fdlibm: within 1 unit in the last place for
   |a| up to 1e5, beyond which the library's functions take over. */
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
    odd[l] = q - 2 * half;                                      /* 0 or 1: the sine or the cosine of what is left */
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

/* The number of table `k` at an index, in a lane. */
static inline T JOIN(pick, NAME)(const Given *given, const int32_t k, const T index, const int l) {
  const int32_t *table = given->program->lookups + 4 * (int64_t)k;
  const int64_t size = given->program->input_sizes[table[0]], length = table[3];
  const int64_t instance = given->first + l < given->batch ? given->first + l : given->batch - 1;
  const T *in = (const T *)given->inputs[table[0]] + (given->sizes[table[0]] == size ? 0 : size * instance);
  const int64_t at = !(index > 0) ? 0 : index < (T)length ? (int64_t)index : length - 1; /* inside, whatever it is */
  return in[table[1] + table[2] * at];
}

static void JOIN(execute, NAME)(const int32_t *code, const int32_t *end, V *restrict x, const Given *given) {
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
      case PICK:
        for (int32_t i = 0; i < n; i++, t += 3) {
          const V a = x[t[1]];
          V r = a;
          EACH(r, JOIN(pick, NAME)(given, t[2], AT(a), LANE));
          x[t[0]] = r;
        }
        break;
    }
    code = t;
  }
}

#if LANES == 1
/* The constants and the first `count` inputs of instance 0. */
static void JOIN(prepare, NAME)(const Program *p, void *const *inputs, int64_t count, T *x) {
  for (int64_t k = 0; k < p->constants; k++) x[k] = (T)p->constant[k];
  for (int64_t k = 0; k < count; k++) {
    const T *in = inputs[k];
    const int32_t *end = p->loads + 2 * p->input_ends[k];
    for (const int32_t *m = p->loads + 2 * (k ? p->input_ends[k - 1] : 0); m < end; m += 2) x[m[1]] = in[m[0]];
  }
}
#endif

/* Loads what all instances have in common; whether that has the results of the program's shared part too. */
static int JOIN(share, NAME)(const Program *p, void *const *inputs, const int64_t *sizes, T *flat) {
  for (int64_t k = 0; k < p->constants; k++)
    for (int l = 0; l < LANES; l++) flat[k * LANES + l] = (T)p->constant[k];
  int together = LANES > 1 && p->shared_length > 0;
  for (int64_t k = 0; k < p->inputs; k++) {
    const int32_t *m = p->loads + 2 * (k ? p->input_ends[k - 1] : 0), *end = p->loads + 2 * p->input_ends[k];
    if (LANES > 1 && sizes[k] != p->input_sizes[k]) {
      if (k < p->shared_inputs) together = 0;
      continue;
    }
    for (; m < end; m += 2)
      for (int l = 0; l < LANES; l++) flat[(int64_t)m[1] * LANES + l] = ((const T *)inputs[k])[m[0]];
  }
  if (together) {
    T *x = malloc((size_t)p->places * sizeof(T) + 64);
    JOIN(prepare, SINGLE)(p, inputs, p->shared_inputs, x);
    const Given given = {p, inputs, sizes, 0, 1};
    JOIN(execute, SINGLE)(p->code, p->code + p->shared_length, x, &given);
    for (int64_t k = 0; k < p->carries; k++)
      for (int l = 0; l < LANES; l++) flat[(int64_t)p->carried[k] * LANES + l] = x[p->carried[k]];
    free(x);
  }
  return together;
}

/* Instances `first` to `last` of a batch. An input has as many numbers as the program reads, or `batch` times as many. */
static void JOIN(run, NAME)(const Program *p, void *const *inputs, const int64_t *sizes, void *const *outputs,
                            int64_t batch, int64_t first, int64_t last) {
  const size_t bytes = (size_t)p->places * sizeof(V);
  /* Small programs live on the stack, where the memory is warm. */
  char local[65536 + 64];
  char *memory = bytes <= 65536 ? local : malloc(bytes + 64);
  V *x = (V *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
  T *flat = (T *)x;
  const int64_t done = JOIN(share, NAME)(p, inputs, sizes, flat) ? p->shared_length : 0;
  for (int64_t start = first; start < last; start += LANES) {
    for (int64_t k = 0; LANES > 1 && k < p->inputs; k++) {
      const int32_t *move = p->loads + 2 * (k ? p->input_ends[k - 1] : 0), *end = p->loads + 2 * p->input_ends[k];
      const int64_t size = p->input_sizes[k];
      if (sizes[k] == size) continue;
      const T *mine[LANES];
      for (int l = 0; l < LANES; l++)
        mine[l] = (const T *)inputs[k] + size * (start + l < batch ? start + l : batch - 1);
      for (const int32_t *m = move; m < end; m += 2)
        for (int l = 0; l < LANES; l++) flat[(int64_t)m[1] * LANES + l] = mine[l][m[0]];
    }
    const Given given = {p, inputs, sizes, start, batch};
    JOIN(execute, NAME)(p->code + done, p->code + p->length, x, &given);
    const int64_t valid = last - start < LANES ? last - start : LANES;
    for (int64_t k = 0; k < p->outputs; k++) {
      const int32_t *move = p->stores + 2 * (k ? p->output_ends[k - 1] : 0), *end = p->stores + 2 * p->output_ends[k];
      T *mine = (T *)outputs[k] + p->output_sizes[k] * start;
      for (const int32_t *m = move; m < end; m += 2)
        for (int64_t l = 0; l < valid; l++) mine[p->output_sizes[k] * l + m[0]] = flat[(int64_t)m[1] * LANES + l];
    }
  }
  if (memory != local) free(memory);
}

#undef V
#undef EACH
#undef AT
#undef LANE
#undef CHOICE
#undef FETCH
#undef UNARY
#undef BINARY
#undef TERNARY
#undef WHOLE
#undef FUNCTION
#undef LANES
#undef NAME
