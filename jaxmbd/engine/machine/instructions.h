/* Defines EXECUTE, which runs instructions on the numbers of `lanes.h`; SLOT: the type of numbers in the code. */

#define INSTRUCTION(OP, arity, e)                                    \
  case OP:                                                           \
    for (int32_t i = 0; i < n; i++, t += arity + 1) x[t[0]] = e;     \
    break;
#define ONE(OP, f) INSTRUCTION(OP, 1, JOIN(f, NAME)(x[t[1]]))
#define TWO(OP, f) INSTRUCTION(OP, 2, JOIN(f, NAME)(x[t[1]], x[t[2]]))
#define THREE(OP, f) INSTRUCTION(OP, 3, JOIN(f, NAME)(x[t[1]], x[t[2]], x[t[3]]))
/* The first operand is uniform: where the uniform prefix was run once for the batch, a scalar `s` for all lanes. */
#define UNIFORM(OP, arity, shared, e)                                        \
  case OP:                                                                   \
    if (s)                                                                   \
      for (int32_t i = 0; i < n; i++, t += arity + 1) x[t[0]] = shared;      \
    else                                                                     \
      for (int32_t i = 0; i < n; i++, t += arity + 1) x[t[0]] = e;           \
    break;
#define SHARED ((V){0} + s[t[1]])

static void EXECUTE(const SLOT *code, const SLOT *end, V *restrict x, const T *restrict s, const Call *c,
                    const int64_t *instances) {
  while (code < end) {
    const int32_t op = code[0], n = code[1];
    const SLOT *t = code + 2;
    switch (op) {
      TWO(ADD, add) TWO(SUB, sub) TWO(MUL, mul) TWO(DIV, div)
      THREE(FMA, fma) THREE(FMS, fms) THREE(FNMA, fnma)
      UNIFORM(UMUL, 2, s[t[1]] * x[t[2]], x[t[1]] * x[t[2]])
      UNIFORM(UFMA, 3, JOIN(fma, NAME)(SHARED, x[t[2]], x[t[3]]), JOIN(fma, NAME)(x[t[1]], x[t[2]], x[t[3]]))
      UNIFORM(UFMS, 3, JOIN(fms, NAME)(SHARED, x[t[2]], x[t[3]]), JOIN(fms, NAME)(x[t[1]], x[t[2]], x[t[3]]))
      UNIFORM(UFNMA, 3, JOIN(fnma, NAME)(SHARED, x[t[2]], x[t[3]]), JOIN(fnma, NAME)(x[t[1]], x[t[2]], x[t[3]]))
      ONE(NEG, neg) TWO(MAX, max) TWO(MIN, min) THREE(SELECT, select)
      TWO(EQ, eq) TWO(NE, ne) TWO(LT, lt) TWO(LE, le) TWO(AND, and) TWO(OR, or) ONE(NOT, not)
      ONE(IS_FINITE, is_finite) ONE(SQRT, sqrt) ONE(ABS, abs) ONE(SIGN, sign) ONE(SIN, sin) ONE(COS, cos)
      ONE(FLOOR, floor) ONE(CEIL, ceil) ONE(ROUND, round) ONE(ROUND_AWAY, round_away)
      ONE(TAN, tan) ONE(ASIN, asin) ONE(ACOS, acos) ONE(ATAN, atan) TWO(ATAN2, atan2)
      ONE(SINH, sinh) ONE(COSH, cosh) ONE(TANH, tanh) ONE(ASINH, asinh) ONE(ACOSH, acosh) ONE(ATANH, atanh)
      ONE(EXP, exp) ONE(EXP2, exp2) ONE(EXPM1, expm1) ONE(LOG, log) ONE(LOG1P, log1p)
      ONE(CBRT, cbrt) ONE(ERF, erf) ONE(ERFC, erfc) TWO(POW, pow) TWO(REM, rem)
      INSTRUCTION(GATHER, 2, JOIN(gather, NAME)(c, t[2], x[t[1]], instances))
    }
    code = t;
  }
}

#undef INSTRUCTION
#undef ONE
#undef TWO
#undef THREE
#undef UNIFORM
#undef SHARED
#undef SLOT
#undef EXECUTE
