/* The slots of a motion's programs in the virtual machine: what is put into them and taken from them. Straight-line code of
   a whole motion has functions of its own in their place (`erk_kernel.py`). */

/* Loads constants and inputs of the program, and runs what depends on the parameters alone, once for all stages. */
static void JOIN(begin, NAME)(const Motion *m, V *x, const int64_t *instances) {
  const Call *c = &m->call;
  const Program *p = c->program;
  T *flat = (T *)x;
  JOIN(load, NAME)(c, flat, NULL);
  for (int64_t k = 0; k < p->inputs; k++) {
    if (c->sizes[k] == p->input_sizes[k]) continue;
    EACH_LANE {
      const T *mine = JOIN(of, NAME)(c, k, instances[l]);
      MOVES(e, p->loads, p->input_ends, k) flat[(int64_t)e[1] * LANES + l] = mine[e[0]];
    }
  }
  JOIN(execute, NAME)(p, 0, p->uniform_length, x, NULL, c, instances);
}

static inline void JOIN(put, NAME)(const Program *p, V *x, const int64_t input, const V *values) {
  if (input >= 0) MOVES(e, p->loads, p->input_ends, input) x[e[1]] = values[e[0]];
}

static inline void JOIN(take, NAME)(const Program *p, const V *x, const int64_t output, V *values) {
  MOVES(e, p->stores, p->output_ends, output) values[e[0]] = x[e[1]];
}

/* Runs the program at a stage; the rest of the inputs has been put in place. */
static inline void JOIN(evaluate, NAME)(const Motion *m, V *x, const int64_t *instances) {
  JOIN(vary, NAME)(&m->call, x, NULL, instances);
}

/* The first result of the program, the slope, at a time and a state. */
static inline void JOIN(slope, NAME)(const Motion *m, V *x, const V *t, const V *y, const int64_t *instances, V *f) {
  const Program *p = m->call.program;
  JOIN(put, NAME)(p, x, m->t_at, t), JOIN(put, NAME)(p, x, m->y_at, y);
  JOIN(evaluate, NAME)(m, x, instances);
  JOIN(take, NAME)(p, x, 0, f);
}

/* The slope and its tangent from a time, a state and their tangents. */
static inline void JOIN(tangent, NAME)(const Motion *m, V *x, const V *t, const V *y, const V *dt, const V *dy,
                                       const int64_t *instances, V *f, V *df) {
  JOIN(put, NAME)(m->call.program, x, m->dt_at, dt), JOIN(put, NAME)(m->call.program, x, m->dy_at, dy);
  JOIN(slope, NAME)(m, x, t, y, instances, f);
  JOIN(take, NAME)(m->call.program, x, 1, df);
}

/* Pulls a cotangent of the slope back: to the state, `bar`, to the time, `tbar`, and in lanes that are `on` to parameters,
   added to their cotangents `bars`. */
static inline void JOIN(pull, NAME)(const Motion *m, V *z, const V *t, const V *y, const V *fbar, const int64_t *instances,
                                    const V on, V *bar, V *tbar, V *bars) {
  const Program *r = m->call.program;
  JOIN(put, NAME)(r, z, m->t_at, t), JOIN(put, NAME)(r, z, m->y_at, y), JOIN(put, NAME)(r, z, m->dy_at, fbar);
  JOIN(evaluate, NAME)(m, z, instances);
  if (m->stage_at < 0) memset(bar, 0, (size_t)m->n * sizeof(V));
  for (int64_t k = 0; k < r->outputs; bars += m->bars[k++].size) {
    if (k == m->stage_at) JOIN(take, NAME)(r, z, k, bar);
    else if (k == m->time_at) JOIN(take, NAME)(r, z, k, tbar);
    else MOVES(e, r->stores, r->output_ends, k) bars[e[0]] += JOIN(select, NAME)(on, z[e[1]], ALL(0));
  }
}

/* Stores the cotangents of the parameters of an instance in a lane. */
static inline void JOIN(deliver, NAME)(const Motion *m, const V *bars, const int64_t l, const int64_t instance) {
  for (int64_t k = 0; k < m[DERIVATIVE].call.program->outputs; k++) {
    const Array *a = &m[DERIVATIVE].bars[k];
    T *own = (T *)a->data + (a->varies ? a->size * instance : 0);
    for (int64_t e = 0; e < a->size; e++) own[e] = LANE_OF(*bars, l), bars++;
  }
}

/* True if something happens after a step in any lane. */
static int JOIN(settles, NAME)(const Motion *m, const int64_t *instances) {
  const Motion *after = m + AFTER;
  if (!HAS(m, AFTER) || after->condition < 0) return HAS(m, AFTER);
  EACH_LANE if (*JOIN(of, NAME)(&after->call, after->condition, instances[l]) != 0) return 1;
  return 0;
}

static void JOIN(begin_all, NAME)(const Motion *m, V *const *at, const int64_t *instances) {
  for (int k = 0; k < PROGRAMS; k++)
    if (HAS(m, k)) JOIN(begin, NAME)(m + k, at[k], instances);
}

/* --- instances that take their turns in the lanes --------------------------------------------------------- */

/* The slots of the programs in their lanes; and as they are after the uniform prefix, which is run for LANES instances
   together, those of the instances from `first` on, which wait for a lane. */
typedef struct {
  const Motion *m;
  V *const *at, *const *waiting;
  int64_t first;
} JOIN(Slots, NAME);

static void JOIN(fill, NAME)(JOIN(Slots, NAME) *s, V *const *at, const int64_t first) {
  int64_t instances[LANES];
  EACH_LANE instances[l] = first + l;
  JOIN(begin_all, NAME)(s->m, at, instances);
  s->first = first;
}

/* A lane takes an instance, the next one of those that wait. */
static void JOIN(admit, NAME)(JOIN(Slots, NAME) *s, const int lane, const int64_t instance) {
  if (instance == s->first + LANES) JOIN(fill, NAME)(s, s->waiting, instance);
  for (int n = 0; n < PROGRAMS; n++) {
    const Call *c = &s->m[n].call;
    const Program *p = c->program;
    if (!HAS(s->m, n)) continue;
    for (int64_t k = 0; k < p->carries; k++) {
      const int32_t slot = p->uniform_live_out[k];
      LANE_OF(s->at[n][slot], lane) = LANE_OF(s->waiting[n][slot], instance - s->first);
    }
    for (int64_t k = p->uniform_inputs; k < p->inputs; k++) {
      if (c->sizes[k] == p->input_sizes[k]) continue;
      const T *mine = JOIN(of, NAME)(c, k, instance);
      MOVES(e, p->loads, p->input_ends, k) LANE_OF(s->at[n][e[1]], lane) = mine[e[0]];
    }
  }
}
