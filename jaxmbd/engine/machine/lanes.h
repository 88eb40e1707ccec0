/* Numbers of type T, of LANES instances side by side, and every operation of programs on them: for the virtual machine
   (`vm_lanes.h`) and for straight-line code (`straight_line.py`), which therefore give the same numbers to the last bit.
   M(f) is the function of `math.h` for T. Both are compiled with `-ffp-contract=off`: products and sums are fused only
   where a program says so. */

/* In long straight-line code a compiler would call even a single instruction. */
#define INLINE static inline __attribute__((always_inline))

#if LANES == 1
typedef T JOIN(V, NAME);
#define V JOIN(V, NAME)
#define EACH(x, e) x = (e)
#define AT(x) (x)
#define LANE 0
#define CHOICE(c, a, b) ((c) ? (a) : (b))
#define TRUTH(c) ((T)(c))
#define BOTH(c, d) ((c) && (d))
#define EITHER(c, d) ((c) || (d))
typedef int JOIN(Mask, NAME);
#else
typedef T JOIN(V, NAME) __attribute__((vector_size(LANES * sizeof(T)), aligned(LANES * sizeof(T))));
#define V JOIN(V, NAME)
typedef INTEGER JOIN(Mask, NAME) __attribute__((vector_size(LANES * sizeof(T)), aligned(LANES * sizeof(T))));
#define EACH(x, e) for (int l = 0; l < LANES; l++) (x)[l] = (e)
#define AT(x) ((x)[l])
#define LANE l
/* A comparison of vectors is a mask of bits. */
INLINE V JOIN(choice, NAME)(const JOIN(Mask, NAME) c, const V a, const V b) {
  return (V)((c & (JOIN(Mask, NAME))a) | (~c & (JOIN(Mask, NAME))b));
}
#define CHOICE(c, a, b) JOIN(choice, NAME)(c, a, b)
#define TRUTH(c) ((V)((c) & (JOIN(Mask, NAME))((V){0} + (T)1)))
#define BOTH(c, d) ((c) & (d))
#define EITHER(c, d) ((c) | (d))
#endif

#define UNARY(f, e) \
  INLINE V JOIN(f, NAME)(const V a) { return e; }
#define BINARY(f, e) \
  INLINE V JOIN(f, NAME)(const V a, const V b) { return e; }
#define TERNARY(f, e) \
  INLINE V JOIN(f, NAME)(const V a, const V b, const V c) { return e; }
/* The same for functions that the C library has for one number. */
#define UNARY_EACH(f, e)                   \
  INLINE V JOIN(f, NAME)(const V a) { \
    V r = a;                               \
    EACH(r, e);                            \
    return r;                              \
  }
#define BINARY_EACH(f, e)                             \
  INLINE V JOIN(f, NAME)(const V a, const V b) { \
    V r = a;                                          \
    EACH(r, e);                                       \
    return r;                                         \
  }
#define LIBRARY(f, function) UNARY_EACH(f, M(function)(AT(a)))

INLINE V JOIN(fma, NAME)(const V a, const V b, const V c) {
#if defined(__FP_FAST_FMA) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  V r = a;
  EACH(r, M(__builtin_fma)(AT(a), AT(b), AT(c)));
  return r;
#else /* a processor that has none would compute it by software */
  return a * b + c;
#endif
}

BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a * b)
BINARY(div, a / b)
TERNARY(fms, JOIN(fma, NAME)(a, b, -c))
TERNARY(fnma, JOIN(fma, NAME)(-a, b, c))
UNARY(neg, -a)
BINARY(max, CHOICE(EITHER(a > b, a != a), a, b))
BINARY(min, CHOICE(EITHER(a < b, a != a), a, b))
TERNARY(select, CHOICE(a != 0, b, c))
BINARY(eq, TRUTH(a == b))
BINARY(ne, TRUTH(a != b))
BINARY(lt, TRUTH(a < b))
BINARY(le, TRUTH(a <= b))
BINARY(and, TRUTH(BOTH(a != 0, b != 0)))
BINARY(or, TRUTH(EITHER(a != 0, b != 0)))
UNARY(not, TRUTH(a == 0))
UNARY(is_finite, TRUTH(a - a == 0))
LIBRARY(sqrt, sqrt)
LIBRARY(abs, fabs)
UNARY(sign, CHOICE(a != a, a, TRUTH(a > 0) - TRUTH(a < 0)))
LIBRARY(floor, floor)
LIBRARY(ceil, ceil)
LIBRARY(round, rint)
LIBRARY(round_away, round)
LIBRARY(tan, tan)
LIBRARY(asin, asin)
LIBRARY(acos, acos)
LIBRARY(atan, atan)
BINARY_EACH(atan2, M(atan2)(AT(a), AT(b)))
LIBRARY(sinh, sinh)
LIBRARY(cosh, cosh)
LIBRARY(tanh, tanh)
LIBRARY(asinh, asinh)
LIBRARY(acosh, acosh)
LIBRARY(atanh, atanh)
LIBRARY(exp, exp)
LIBRARY(exp2, exp2)
LIBRARY(expm1, expm1)
LIBRARY(log, log)
LIBRARY(log1p, log1p)
LIBRARY(cbrt, cbrt)
LIBRARY(erf, erf)
LIBRARY(erfc, erfc)
BINARY_EACH(pow, M(pow)(AT(a), AT(b)))
BINARY_EACH(rem, M(fmod)(AT(a), AT(b)))

/* A number in all lanes, and a step of Horner's method. */
#if LANES == 1
#define ALL(number) ((T)(number))
#else
#define ALL(number) ((V){0} + (T)(number))
#endif
#define HORNER(z, sum, coefficient) JOIN(fma, NAME)(z, sum, ALL(coefficient))

/* Sine and cosine: by argument reduction to [-pi/4, pi/4] and the polynomials of fdlibm, with an error of at most 1 unit in
   the last place for |a| up to 1e5 (in single precision 1e3), which is faster than the C library also for one number; beyond
   by the C library. */
static void JOIN(sine_cosine, NAME)(const V a, V *sine, V *cosine) {
#ifdef SINE_COSINE
  SINE_COSINE(a, sine, cosine);
#else
  const int wide = sizeof(T) == 8;
  const V k = JOIN(round, NAME)(a * ALL(6.36619772367581382433e-01));
  V r = JOIN(fnma, NAME)(k, ALL(wide ? 1.57079632673412561417e+00 : 1.5703125), a);
  r = JOIN(fnma, NAME)(k, ALL(wide ? 6.07710050630396597660e-11 : 4.837512969970703e-4), r);
  r = JOIN(fnma, NAME)(k, ALL(wide ? 2.02226624879595063154e-21 : 7.549789948768648e-8), r);
  const V z = r * r, h = ALL(0.5) * z, w = ALL(1) - h;
  V s = HORNER(z, ALL(1.58969099521155010221e-10), -2.50507602534068634195e-08);
  s = HORNER(z, HORNER(z, s, 2.75573137070700676789e-06), -1.98412698298579493134e-04);
  s = HORNER(z, HORNER(z, s, 8.33333333332248946124e-03), -1.66666666666666324348e-01);
  V c = HORNER(z, ALL(-1.13596475577881948265e-11), 2.08757232129817482790e-09);
  c = HORNER(z, HORNER(z, c, -2.75573143513906633035e-07), 2.48015872894767294178e-05);
  c = HORNER(z, HORNER(z, c, -1.38888888888741095749e-03), 4.16666666666666019037e-02);
  const V x = JOIN(fma, NAME)(r * z, s, r), y = w + JOIN(fma, NAME)(z * z, c, (ALL(1) - w) - h);
  /* The quarter turns k, less whole turns, from -2 to 2: an odd number swaps sine and cosine. */
  const V q = JOIN(fnma, NAME)(ALL(4), JOIN(round, NAME)(k * ALL(0.25)), k), turned = JOIN(abs, NAME)(q);
  const V first = CHOICE(turned == 1, y, x), second = CHOICE(turned == 1, x, y);
  *sine = CHOICE(EITHER(q < 0, turned == 2), -first, first);
  *cosine = CHOICE(EITHER(q > 0, turned == 2), -second, second);
  const JOIN(Mask, NAME) beyond = EITHER(JOIN(abs, NAME)(a) > ALL(wide ? 1e5 : 1e3), a != a);
  INTEGER any = 0;
  for (int l = 0; l < LANES; l++) any |= AT(beyond);
  if (__builtin_expect(any != 0, 0))
    for (int l = 0; l < LANES; l++)
      if (AT(beyond)) AT(*sine) = M(sin)(AT(a)), AT(*cosine) = M(cos)(AT(a));
#endif
}

INLINE V JOIN(sin, NAME)(const V a) {
  V sine, cosine;
  JOIN(sine_cosine, NAME)(a, &sine, &cosine);
  return sine;
}

INLINE V JOIN(cos, NAME)(const V a) {
  V sine, cosine;
  JOIN(sine_cosine, NAME)(a, &sine, &cosine);
  return cosine;
}
