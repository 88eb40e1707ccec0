/* The operands of a call (`program.h`) for an instance, and the tables among them, for the numbers of `lanes.h`. */

/* The elements of an input for an instance; lanes beyond the last instance repeat it. */
static inline const T *JOIN(of, NAME)(const Call *c, const int64_t input, const int64_t instance) {
  const int64_t size = c->program->input_sizes[input], at = instance < c->batch ? instance : c->batch - 1;
  const int64_t all = c->sizes[input];
  return (const T *)c->inputs[input] + (all == size ? 0 : size * (all == size * c->batch ? at : at / (size * c->batch / all)));
}

/* The element of table `k` at an index, which is clamped into the table. */
static inline T JOIN(element, NAME)(const Call *c, const int32_t k, const T index, const int64_t instance) {
  const int32_t *table = c->program->gathers + 4 * (int64_t)k;
  const int64_t length = table[3];
  const int64_t at = !(index > 0) ? 0 : index < (T)length ? (int64_t)index : length - 1; /* NaN becomes 0 */
  return JOIN(of, NAME)(c, table[0], instance)[table[1] + table[2] * at];
}

INLINE V JOIN(gather, NAME)(const Call *c, const int32_t k, const V a, const int64_t *instances) {
  V r = a;
  EACH(r, JOIN(element, NAME)(c, k, AT(a), instances[LANE]));
  return r;
}
