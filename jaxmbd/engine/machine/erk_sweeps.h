/* Sweeps over the accepted steps of a motion (`erk_loop.h`): forward with tangents, backward with cotangents. */

/* The recorded steps of the lanes, and what is still to be swept over. `stride`: of the checkpoints; `left`: the last of
   the saved times that are left; `most`: the longest stride. */
typedef struct {
  const T *starts[LANES], *ends[LANES], *kinds[LANES], *ts[LANES];
  int64_t accepted[LANES], stride[LANES], left[LANES], steps, most;
} JOIN(Steps, NAME);

/* True if entry `i` of the record of a lane is an event (`erk_events.h`). */
static inline int JOIN(is_event, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int l, const int64_t i) {
  return EVENTS(m) && i >= 0 && i < a->accepted[l] && a->kinds[l][i] != NOTHING;
}

/* True if a saved time is in step `i` of a lane. At the end of a motion, and at its start, rounding does not count; at the time
   of an event the state after it is saved. */
static inline int JOIN(is_within, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int l, const int64_t i, const T t) {
  if (JOIN(is_event, NAME)(m, a, l, i)) return 0;
  const int after = i == 0 || t > a->starts[l][i] || (JOIN(is_event, NAME)(m, a, l, i - 1) && t >= a->starts[l][i]);
  const int before = JOIN(is_event, NAME)(m, a, l, i + 1) ? t < a->ends[l][i] : t <= a->ends[l][i] || i == a->accepted[l] - 1;
  return after && before;
}

static void JOIN(begin_steps, NAME)(JOIN(Steps, NAME) *a, const Motion *m, const int64_t *instances) {
  const int64_t batch = m->call.batch;
  a->steps = 0, a->most = 1;
  EACH_LANE {
    a->starts[l] = JOIN(row, NAME)(&m->starts, batch, instances[l]), a->ends[l] = JOIN(row, NAME)(&m->ends, batch, instances[l]);
    a->ts[l] = JOIN(row, NAME)(&m->ts, batch, instances[l]);
    if (EVENTS(m)) a->kinds[l] = JOIN(row, NAME)(&m->kinds, batch, instances[l]);
    const int64_t accepted = a->accepted[l] = *counter(&m->counts[ACCEPTED], batch, instances[l]);
    a->left[l] = *counter(&m->counts[SAVED], batch, instances[l]) - 1;
    a->stride[l] = (int64_t)1 << (accepted ? level_of(accepted - 1, m->rows) : 0);
    if (accepted > a->steps) a->steps = accepted;
    if (a->stride[l] > a->most) a->most = a->stride[l];
  }
}

/* The ends of step `i` of each lane that is `wanted`, zero in the others. */
static void JOIN(ends, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int64_t *instances, const int64_t *i,
                             const int *wanted, V *t, V *end) {
  *t = *end = ALL(0);
  EACH_LANE {
    if (!wanted[l]) continue;
    T from = a->starts[l][i[l]], to = a->ends[l][i[l]];
    if (!JOIN(is_event, NAME)(m, a, l, i[l])) JOIN(stay_inside, NAME)(m, instances[l], &from, &to);
    LANE_OF(*t, l) = from, LANE_OF(*end, l) = to;
  }
}

/* A step of all lanes that are `active`, those that have it; its ends are zero in the others. */
typedef struct {
  int64_t i;
  int active[LANES];
  V t, end, h;
} JOIN(Step, NAME);

static JOIN(Step, NAME) JOIN(common_step, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int64_t *instances,
                                                const int64_t i) {
  JOIN(Step, NAME) e = {i};
  int64_t same[LANES];
  EACH_LANE same[l] = i, e.active[l] = i < a->accepted[l];
  JOIN(ends, NAME)(m, a, instances, same, e.active, &e.t, &e.end);
  e.h = e.end - e.t;
  return e;
}

/* --- tangents --------------------------------------------------------------------------------------------- */

/* Adds a scale times the sum of weights times the tangents of slopes, `df (stages, directions, moving)`, to those of a state,
   `x (directions, n)`. */
static inline void JOIN(combine_into, NAME)(const Motion *m, V *x, const V scale, const double *weights, const int64_t count,
                                            const V *df) {
  const int64_t n = STATES(m), moving = MOVING(m), directions = DIRECTIONS(m);
  for (int64_t j = 0; j < count; j++) {
    if (weights[j] == 0) continue;
    const V factor = scale * ALL(weights[j]);
    for (int64_t d = 0; d < directions; d++) {
      const V *slope = df + (j * directions + d) * moving;
      for (int64_t k = 0; k < moving; k++) x[d * n + k] = JOIN(fma, NAME)(factor, slope[k], x[d * n + k]);
    }
  }
}

/* What a sweep for tangents works on: the state and the slopes of a step, `f (stages, n)`, their tangents along each
   direction, the tangents of the step's start and length, and one stage of it. */
typedef struct {
  V *y, *f, *dy, *df, *dt0, *dh;
  V *slope, *stage, *dt, *dstage;
} JOIN(Tangents, NAME);

/* The tangents of the start and the length of a step: the first one starts at t0, the last one of a run that gets there ends
   at t1, and those next to a switching time there; all others stay where they are. With events the state knows where a step
   starts: after one, the start moves. */
static void JOIN(move_ends, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const JOIN(Step, NAME) *e,
                                  const int64_t *instances, const V *dy, V *dt0, V *dh) {
  const int64_t batch = m->call.batch;
  for (int64_t d = 0; d < DIRECTIONS(m); d++) dt0[d] = dh[d] = ALL(0);
  if (!m->dts.data) return;
  EACH_LANE {
    if (!e->active[l] || JOIN(is_event, NAME)(m, a, l, e->i)) continue;
    const int is_first = e->i == 0 && !EVENTS(m);
    const int is_last = (e->i == a->accepted[l] - 1 || EVENTS(m)) && LANE_OF(e->end, l) >= *JOIN(row, NAME)(&m->t1, batch, instances[l]);
    const T *first = JOIN(row, NAME)(&m->dt0, batch, instances[l]), *last = JOIN(row, NAME)(&m->dt1, batch, instances[l]);
    const T *switches = m->switches.size ? JOIN(row, NAME)(&m->dswitches, batch, instances[l]) : NULL;
    const int64_t starts = JOIN(switch_at, NAME)(m, instances[l], a->starts[l][e->i]);
    const int64_t ends = JOIN(switch_at, NAME)(m, instances[l], a->ends[l][e->i]);
    for (int64_t d = 0; d < DIRECTIONS(m); d++) {
      if (is_first) LANE_OF(dt0[d], l) = first[d];
      if (starts >= 0) LANE_OF(dt0[d], l) = switches[d * m->switches.size + starts];
      if (EVENTS(m)) LANE_OF(dt0[d], l) = LANE_OF(dy[d * STATES(m) + m->memory.time], l);
      const T dend = is_last ? last[d] : ends >= 0 ? switches[d * m->switches.size + ends] : 0;
      LANE_OF(dh[d], l) = dend - LANE_OF(dt0[d], l);
    }
  }
}

/* The first slopes of a step of all lanes are known from the step before, unless an event or a switching time is between. */
static int JOIN(goes_on, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int64_t *instances, const int64_t i) {
  if (!i || !m->method.fsal || CLOSES(m)) return 0;
  EACH_LANE {
    if (JOIN(is_event, NAME)(m, a, l, i - 1)) return 0;
    if (i < a->accepted[l] && JOIN(switch_at, NAME)(m, instances[l], a->starts[l][i]) >= 0) return 0;
  }
  return 1;
}

/* The slopes of a step and their tangents. */
static void JOIN(tangent_stages, NAME)(const Motion *m, V *const *at, const JOIN(Step, NAME) *e, const JOIN(Tangents, NAME) *g,
                                       const int goes_on, const int64_t *instances) {
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), moving = MOVING(m), s = STAGES(m), directions = DIRECTIONS(m), all = directions * moving;
  for (int64_t k = moving; k < n; k++) g->stage[k] = g->y[k];
  for (int64_t k = 0; k < directions * n; k++) g->dstage[k] = g->dy[k];
  ROLLED for (int64_t j = 0; j < s; j++) {
    if (j == 0 && goes_on) {
      for (int64_t k = 0; k < moving; k++) g->f[k] = g->f[(s - 1) * moving + k];
      for (int64_t k = 0; k < all; k++) g->df[k] = g->df[(s - 1) * all + k];
      continue;
    }
    for (int64_t k = 0; k < moving; k++) {
      g->slope[k] = JOIN(combine, NAME)(q->a + j * s, j, g->f + k, moving);
      g->stage[k] = g->y[k] + e->h * g->slope[k];
    }
    for (int64_t d = 0; d < directions; d++) {
      for (int64_t k = 0; k < moving; k++) g->dstage[d * n + k] = g->dy[d * n + k] + g->dh[d] * g->slope[k];
      g->dt[d] = g->dt0[d] + ALL(q->c[j]) * g->dh[d];
    }
    JOIN(combine_into, NAME)(m, g->dstage, e->h, q->a + j * s, j, g->df);
    const V t = q->c[j] == 1 ? e->end : e->t + ALL(q->c[j]) * e->h;
    TANGENT(m, DERIVATIVE, at, &t, g->stage, g->dt, g->dstage, instances, g->f + j * moving, g->df + j * all);
  }
}

/* The tangents of the states at the saved times within a step, one saved time of each lane after another; `next`: those of
   the lanes that come next. */
static void JOIN(save_tangents, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const JOIN(Step, NAME) *e,
                                      const JOIN(Tangents, NAME) *g, const int64_t *instances, const int64_t valid,
                                      int64_t *next) {
  const int64_t n = MOVING(m), s = STAGES(m), directions = DIRECTIONS(m), all = directions * n;
  const int64_t batch = m->call.batch, times = m->ts.size;
  for (;;) {
    V w[STAGES(m)], dw[STAGES(m)], theta = {0};
    T *mine[LANES] = {0};
    const T *moves[LANES] = {0};
    int any = 0;
    for (int64_t l = 0; l < valid; l++) {
      if (!e->active[l] || next[l] > a->left[l]) continue;
      const T time = a->ts[l][next[l]];
      if (!JOIN(is_within, NAME)(m, a, l, e->i, time)) continue;
      LANE_OF(theta, l) = LANE_OF(e->h, l) == 0 ? 0 : (time - LANE_OF(e->t, l)) / LANE_OF(e->h, l);
      moves[l] = m->dts.data ? JOIN(row, NAME)(&m->dts, batch, instances[l]) + next[l] : NULL;
      any = 1, mine[l] = JOIN(row, NAME)(&m->ys, batch, instances[l]) + n * next[l]++;
    }
    if (!any) return;
    JOIN(dense_weights, NAME)(&m->method, theta, w, dw);
    for (int64_t d = 0; d < directions; d++) {
      V moved = {0};
      EACH_LANE if (moves[l]) LANE_OF(moved, l) = moves[l][d * times];
      moved -= g->dt0[d] + theta * g->dh[d];
      for (int64_t k = 0, at = d * n; k < n; k++, at++) {
        V value = g->dy[d * STATES(m) + k];
        for (int64_t j = 0; j < s; j++)
          value += e->h * w[j] * g->df[j * all + at] + (g->dh[d] * w[j] + moved * dw[j]) * g->f[j * n + k];
        EACH_LANE if (mine[l]) mine[l][d * times * n + k] = LANE_OF(value, l);
      }
    }
  }
}

/* What an event does to the tangents: in the lanes in which entry `i` is one, those of the state after it, and of its row in
   the log. `result`, `dresult`: room for what it gives. */
static void JOIN(tangent_event, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const JOIN(Step, NAME) *e, V *const *at,
                                      V *y, V *dy, V *dt, V *result, V *dresult, const int64_t *instances, const int64_t valid) {
  const Memory *k = &m->memory;
  const int64_t n = STATES(m), entry = ENTRY(m), all = n + entry, directions = DIRECTIONS(m);
  int any = 0;
  EACH_LANE {
    if (!JOIN(is_event, NAME)(m, a, l, e->i)) continue;
    any = 1, LANE_OF(y[k->due], l) = a->kinds[l][e->i];
  }
  if (!any) return;
  for (int64_t d = 0; d < directions; d++) dt[d] = dy[d * n + k->time];
  TANGENT(m, EVENT_DERIVATIVE, at, &e->t, y, dt, dy, instances, result, dresult);
  for (int64_t l = 0; l < LANES; l++) {
    if (!JOIN(is_event, NAME)(m, a, l, e->i)) continue;
    const int64_t row = (int64_t)LANE_OF(y[k->logged], l);
    const int logs = LANE_OF(result[k->logged], l) > row && row < k->room && l < valid;
    T *mine = JOIN(row, NAME)(&m->log, m->call.batch, instances[l]);
    for (int64_t i = 0; i < n; i++) LANE_OF(y[i], l) = LANE_OF(result[i], l);
    for (int64_t d = 0; d < directions; d++) {
      for (int64_t i = 0; i < n; i++) LANE_OF(dy[d * n + i], l) = LANE_OF(dresult[d * all + i], l);
      for (int64_t i = 0; logs && i < entry; i++)
        mine[(d * k->room + row) * entry + i] = LANE_OF(dresult[d * all + n + i], l);
    }
  }
}

/* The tangents of the saved states and the final state, from those of parameters, initial state and times, each along some
   directions: the program gives slopes and their tangents, and the accepted steps are those of the run. */
static int JOIN(sweep_tangents, NAME)(const Motion *m, const int64_t *instances, const int64_t valid) {
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), s = STAGES(m), moving = MOVING(m), directions = DIRECTIONS(m), all = directions * n;
  const int64_t batch = m->call.batch, times = m->ts.size;
  const int implicit = IMPLICIT(m), settles = JOIN(settles, NAME)(m, instances);
  WORKSPACE(memory, ALL_SLOTS(m) + (1 + directions) * (moving * s + 2 * n + ROOM_OF_EVENT(m) + RESULTS(m, CLOSING) + ROOM_OF_WORK(m) + ROOM_OF_FOUND(m)) + moving + 3 * directions + n)
  EACH_PROGRAM(TAKE_SLOTS)
  ROOM(f, MOVING(m) * STAGES(m)) ROOM(df, DIRECTIONS(m) * MOVING(m) * STAGES(m)) ROOM(y, STATES(m)) ROOM(dy, DIRECTIONS(m) * STATES(m))
  ROOM(stage, STATES(m)) ROOM(dstage, DIRECTIONS(m) * STATES(m)) ROOM(slope, MOVING(m))
  ROOM(dt0, DIRECTIONS(m)) ROOM(dh, DIRECTIONS(m)) ROOM(dt, DIRECTIONS(m))
  ROOM(jump, ROOM_OF_EVENT(m)) ROOM(djump, DIRECTIONS(m) * ROOM_OF_EVENT(m))
  ROOM(from, CLOSES(m) ? STATES(m) : 0) ROOM(closed, RESULTS(m, CLOSING)) ROOM(dclosed, DIRECTIONS(m) * RESULTS(m, CLOSING))
  ROOM(work, ROOM_OF_WORK(m)) ROOM(dwork, DIRECTIONS(m) * ROOM_OF_WORK(m))
  ROOM(found, ROOM_OF_FOUND(m)) ROOM(dfound, DIRECTIONS(m) * ROOM_OF_FOUND(m))
  V *const at[PROGRAMS] = {EACH_PROGRAM(AT_SLOTS)};
  const JOIN(Closing, NAME) closing = {at, from, closed, dclosed};
  const JOIN(Implicit, NAME) newton = {at, work, dwork, found, dfound};
  const JOIN(Tangents, NAME) g = {y, f, dy, df, dt0, dh, slope, stage, dt, dstage};
  JOIN(Steps, NAME) a;
  JOIN(begin_steps, NAME)(&a, m, instances);
  int64_t next[LANES];
  EACH_LANE next[l] = 0;
  JOIN(begin_all, NAME)(m, at, instances);
  for (int64_t l = 0; EVENTS(m) && l < valid; l++)
    memset(JOIN(row, NAME)(&m->log, batch, instances[l]), 0, (size_t)m->log.size * sizeof(T));
  JOIN(gather_lanes, NAME)(m, &m->y0, instances, y);
  if (m->dy0.data) JOIN(gather_lanes, NAME)(m, &m->dy0, instances, dy);
  else memset(dy, 0, (size_t)all * sizeof(V));
  for (int64_t i = 0; i < a.steps; i++) {
    const JOIN(Step, NAME) e = JOIN(common_step, NAME)(m, &a, instances, i);
    JOIN(move_ends, NAME)(m, &a, &e, instances, dy, dt0, dh);
    if (implicit) {
      memcpy(dstage, dy, (size_t)all * sizeof(V));
      JOIN(implicit_step, NAME)(m, &newton, e.t, e.end, y, f, stage, instances);
      JOIN(tangent_implicit, NAME)(m, &newton, e.t, e.h, dstage, dt0, dh, df, instances);
    } else {
      JOIN(tangent_stages, NAME)(m, at, &e, &g, JOIN(goes_on, NAME)(m, &a, instances, i), instances);
    }
    JOIN(save_tangents, NAME)(m, &a, &e, &g, instances, valid, next);
    if (implicit) memcpy(y, stage, (size_t)n * sizeof(V)), memcpy(dy, dstage, (size_t)all * sizeof(V));
    for (int64_t k = 0; k < moving && !implicit; k++) {
      slope[k] = JOIN(combine, NAME)(q->b, s, f + k, moving);
      y[k] += e.h * slope[k];
      for (int64_t d = 0; d < directions; d++) dy[d * n + k] += dh[d] * slope[k];
    }
    if (!implicit) JOIN(combine_into, NAME)(m, dy, e.h, q->b, s, df);
    const V rests = JOIN(eq, NAME)(e.h, ALL(0));
    JOIN(close, NAME)(m, &closing, &e.end, y, rests, instances);
    for (int64_t d = 0; d < directions; d++) dt[d] = dt0[d] + dh[d];
    JOIN(tangent_closing, NAME)(m, &closing, &e.end, dt, dy, rests, instances);
    if (EVENTS(m)) {
      y[m->memory.time] = e.end;
      EACH_LANE {
        if (!e.active[l] || JOIN(is_event, NAME)(m, &a, l, i)) continue;
        for (int64_t d = 0; d < directions; d++) LANE_OF(dy[d * n + m->memory.time], l) = LANE_OF(dt0[d], l) + LANE_OF(dh[d], l);
      }
      JOIN(tangent_event, NAME)(m, &a, &e, at, y, dy, dt, jump, djump, instances, valid);
    }
    if (settles) JOIN(settle, NAME)(m, at, &e.end, y, instances);
  }
  for (int64_t l = 0; l < valid; l++) {
    T *state = JOIN(row, NAME)(&m->y_end, batch, instances[l]), *dys = JOIN(row, NAME)(&m->ys, batch, instances[l]);
    for (int64_t k = 0; k < all; k++) state[k] = LANE_OF(dy[k], l);
    for (int64_t d = 0; d < directions; d++)
      for (int64_t k = moving * next[l]; k < times * moving; k++) dys[d * times * moving + k] = 0;
  }
  if (!implicit) COUNT(m, DERIVATIVE, s * a.steps);
  RELEASE(memory)
  return 1;
}

/* --- cotangents ------------------------------------------------------------------------------------------- */

/* What takes steps again: the slots of the programs, and what puts their ends back onto the constraints. */
typedef struct {
  V *const *at;
  JOIN(Closing, NAME) closing;
  JOIN(Implicit, NAME) newton;
  int settles;
} JOIN(Again, NAME);

/* The stages and slopes of a step from `t` to `end` that starts at `y`, and its end in `next`. */
static void JOIN(step, NAME)(const Motion *m, const JOIN(Again, NAME) *g, const V t, const V end, const V *y, V *stage, V *f,
                             V *next, const int64_t *instances) {
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), moving = MOVING(m), s = STAGES(m), implicit = IMPLICIT(m);
  const V h = end - t;
  if (implicit) JOIN(implicit_step, NAME)(m, &g->newton, t, end, y, f, next, instances);
  ROLLED for (int64_t j = implicit ? s : 0; j < s; j++) {
    V at = q->c[j] == 1 ? end : t + ALL(q->c[j]) * h;
    for (int64_t k = 0; k < moving; k++) stage[j * n + k] = y[k] + h * JOIN(combine, NAME)(q->a + j * s, j, f + k, moving);
    for (int64_t k = moving; k < n; k++) stage[j * n + k] = y[k];
    SLOPE(m, RATE, g->at, &at, stage + j * n, instances, f + j * moving);
  }
  for (int64_t k = 0; k < moving && !implicit; k++) next[k] = y[k] + h * JOIN(combine, NAME)(q->b, s, f + k, moving);
  for (int64_t k = moving; k < n && !implicit; k++) next[k] = y[k];
  JOIN(close, NAME)(m, &g->closing, &end, next, JOIN(eq, NAME)(h, ALL(0)), instances);
  if (EVENTS(m)) next[m->memory.time] = end;
  if (g->settles) JOIN(settle, NAME)(m, g->at, &end, next, instances);
}

/* The state after an event, in the lanes with one at entry `i` of their own; `next`: the state before it, where `y` is. */
static void JOIN(repeat_event, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int64_t *i, const int *wanted,
                                     V *const *at, const V t, V *y, V *result, V *next, const int64_t *instances) {
  int any = 0;
  EACH_LANE {
    if (!wanted[l] || !JOIN(is_event, NAME)(m, a, l, i[l])) continue;
    any = 1, LANE_OF(y[m->memory.due], l) = a->kinds[l][i[l]];
  }
  if (!any) return;
  SLOPE(m, EVENT, at, &t, y, instances, result);
  EACH_LANE {
    if (!wanted[l] || !JOIN(is_event, NAME)(m, a, l, i[l])) continue;
    for (int64_t k = 0; k < STATES(m); k++) LANE_OF(next[k], l) = LANE_OF(result[k], l);
  }
}

/* The first states of the steps since the last checkpoint up to step `i`, computed again in the lanes that reach the end of
   such a part of the motion; and in `y` that of step `i`. */
static void JOIN(restore, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int64_t i, const JOIN(Again, NAME) *g,
                                V *result, V *stage, V *f, V *next, V *between, V *y, const int64_t *instances) {
  const int64_t n = STATES(m);
  int64_t step[LANES];
  int fresh[LANES], any = 0;
  EACH_LANE {
    const int64_t stride = a->stride[l];
    step[l] = i / stride * stride;
    fresh[l] = i < a->accepted[l] && (i == a->accepted[l] - 1 || (i + 1) % stride == 0);
    if (!fresh[l]) continue;
    const T *state = JOIN(row, NAME)(&m->checkpoints, m->call.batch, instances[l]) + n * place_of(step[l], m->rows);
    for (int64_t k = 0; k < n; k++) LANE_OF(between[k], l) = state[k];
  }
  for (int64_t j = 0;; j++) {
    any = 0;
    EACH_LANE any |= fresh[l] &= step[l] < i;
    if (!any) break;
    V t, end;
    JOIN(ends, NAME)(m, a, instances, step, fresh, &t, &end);
    JOIN(step, NAME)(m, g, t, end, between + n * j, stage, f, next, instances);
    if (EVENTS(m)) JOIN(repeat_event, NAME)(m, a, step, fresh, g->at, t, between + n * j, result, next, instances);
    for (int64_t k = 0; k < n; k++) EACH_LANE if (fresh[l]) LANE_OF(between[n * (j + 1) + k], l) = LANE_OF(next[k], l);
    EACH_LANE step[l] += fresh[l];
  }
  for (int64_t k = 0; k < n; k++) EACH_LANE LANE_OF(y[k], l) = LANE_OF(between[n * (i % a->stride[l]) + k], l);
}

/* What a sweep for cotangents works on in a step: the stages, `stage (stages, n)`, and their slopes,
   `f (stages, moving)`; the cotangents of the slopes, the state, and the step's start and length; and one cotangent of a state. */
typedef struct {
  V *stage, *f, *fbar, *ybar, *bar;
  V startbar, hbar;
} JOIN(Cotangents, NAME);

/* Adds the cotangents of the states saved within a step, one saved time of each lane after another. */
static void JOIN(pull_saved, NAME)(const Motion *m, JOIN(Steps, NAME) *a, const JOIN(Step, NAME) *e, JOIN(Cotangents, NAME) *g,
                                   const int64_t *instances, const int64_t valid) {
  const int64_t n = MOVING(m), s = STAGES(m), batch = m->call.batch;
  for (;;) {
    V w[STAGES(m)], dw[STAGES(m)], theta = {0}, moved = {0};
    int64_t due[LANES];
    int any = 0;
    EACH_LANE {
      const int is_due = e->active[l] && a->left[l] >= 0 && JOIN(is_within, NAME)(m, a, l, e->i, a->ts[l][a->left[l]]);
      due[l] = is_due ? a->left[l]-- : -1;
      if (!is_due) continue;
      any = 1, LANE_OF(theta, l) = LANE_OF(e->h, l) == 0 ? 0 : (a->ts[l][due[l]] - LANE_OF(e->t, l)) / LANE_OF(e->h, l);
    }
    if (!any) return;
    for (int64_t k = 0; k < n; k++)
      EACH_LANE LANE_OF(g->bar[k], l) = due[l] < 0 ? 0 : JOIN(row, NAME)(&m->dys, batch, instances[l])[due[l] * n + k];
    JOIN(dense_weights, NAME)(&m->method, theta, w, dw);
    for (int64_t j = 0; j < s; j++) {
      V product = {0};
      for (int64_t k = 0; k < n; k++) product += g->bar[k] * g->f[j * n + k], g->fbar[j * n + k] += e->h * w[j] * g->bar[k];
      g->hbar += (w[j] - theta * dw[j]) * product, moved += dw[j] * product;
    }
    for (int64_t l = 0; m->dts.data && l < valid; l++)
      if (due[l] >= 0) JOIN(row, NAME)(&m->dts, batch, instances[l])[due[l]] += LANE_OF(moved, l);
    g->startbar -= moved;
    for (int64_t k = 0; k < n; k++) g->ybar[k] += g->bar[k];
  }
}

/* Pulls the cotangents of the slopes of a step back, from the last stage to the first one. `bars`: the cotangents of
   parameters. */
static void JOIN(pull_stages, NAME)(const Motion *m, V *const *at, const JOIN(Step, NAME) *e, JOIN(Cotangents, NAME) *g, V *bars,
                                    const int64_t *instances) {
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), moving = MOVING(m), s = STAGES(m);
  V *f = g->f, *fbar = g->fbar, *bar = g->bar;
  ROLLED for (int64_t j = s - 1; j >= 0; j--) {
    V on = {0}; /* 1 in lanes with a cotangent of this slope */
    for (int64_t k = 0; k < moving; k++) on = JOIN(or, NAME)(on, JOIN(ne, NAME)(fbar[j * moving + k], ALL(0)));
    int any = 0;
    EACH_LANE any |= LANE_OF(on, l) != 0;
    if (!any) continue;
    V t = q->c[j] == 1 ? e->end : e->t + ALL(q->c[j]) * e->h, tbar = {0};
    PULL(m, DERIVATIVE, at, &t, g->stage + j * n, fbar + j * moving, instances, on, bar, &tbar, bars);
    tbar = JOIN(select, NAME)(on, tbar, ALL(0));
    g->startbar += tbar, g->hbar += ALL(q->c[j]) * tbar;
    for (int64_t k = 0; k < n; k++) bar[k] = JOIN(select, NAME)(on, bar[k], ALL(0)), g->ybar[k] += bar[k];
    for (int64_t k = 0; k < moving; k++) {
      g->hbar += bar[k] * JOIN(combine, NAME)(q->a + j * s, j, f + k, moving);
      for (int64_t i = 0; i < j; i++) fbar[i * moving + k] += ALL(q->a[j * s + i]) * e->h * bar[k];
    }
  }
}

/* Adds the cotangents of a step's ends to those of the times of the run (`move_ends`). */
static void JOIN(pull_ends, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const JOIN(Step, NAME) *e,
                                  const JOIN(Cotangents, NAME) *g, const int64_t *instances, const int64_t valid) {
  const int64_t batch = m->call.batch;
  for (int64_t l = 0; l < valid; l++) {
    if (!e->active[l]) continue;
    T *first = JOIN(row, NAME)(&m->dt0, batch, instances[l]), *last = JOIN(row, NAME)(&m->dt1, batch, instances[l]);
    const T t1 = *JOIN(row, NAME)(&m->t1, batch, instances[l]), startbar = LANE_OF(g->startbar, l) - LANE_OF(g->hbar, l);
    const int is_last = e->i == a->accepted[l] - 1 || EVENTS(m), is_event = JOIN(is_event, NAME)(m, a, l, e->i);
    if (is_event) continue;
    const T endbar = LANE_OF(g->hbar, l) + (EVENTS(m) ? LANE_OF(g->ybar[m->memory.time], l) : 0);
    T *switches = m->switches.size ? JOIN(row, NAME)(&m->dswitches, batch, instances[l]) : NULL;
    const int64_t starts = JOIN(switch_at, NAME)(m, instances[l], a->starts[l][e->i]);
    const int64_t ends = JOIN(switch_at, NAME)(m, instances[l], a->ends[l][e->i]);
    if (starts >= 0 && !EVENTS(m)) switches[starts] += startbar;
    else if (e->i == 0 && !EVENTS(m)) *first += startbar;
    if (is_last && a->ends[l][e->i] >= t1) *last += endbar;
    else if (ends >= 0) switches[ends] += endbar;
    if (EVENTS(m)) LANE_OF(g->ybar[m->memory.time], l) = startbar;
  }
}

/* What an event does to the cotangents, in the lanes in which entry `i` is one: `ybar` becomes that of the state before it,
   and `bars` receive those of parameters. `result`: room for the cotangent of what an event gives. */
static void JOIN(pull_event, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const JOIN(Step, NAME) *e, V *const *at, V *y,
                                   V *result, JOIN(Cotangents, NAME) *g, V *bars, const int64_t *instances) {
  const Memory *k = &m->memory;
  const int64_t n = STATES(m), entry = ENTRY(m);
  V on = {0}, tbar = {0};
  int any = 0;
  EACH_LANE {
    if (!JOIN(is_event, NAME)(m, a, l, e->i)) continue;
    any = 1, LANE_OF(on, l) = 1, LANE_OF(y[k->due], l) = a->kinds[l][e->i];
  }
  if (!any) return;
  SLOPE(m, EVENT, at, &e->t, y, instances, result);
  EACH_LANE {
    const int64_t row = (int64_t)LANE_OF(y[k->logged], l);
    const int is_event = LANE_OF(on, l) != 0, logs = is_event && LANE_OF(result[k->logged], l) > row && row < k->room;
    const T *mine = JOIN(row, NAME)(&m->dlog, m->call.batch, instances[l]) + row * entry;
    for (int64_t i = 0; i < n; i++) LANE_OF(result[i], l) = is_event ? LANE_OF(g->ybar[i], l) : 0;
    for (int64_t i = 0; i < entry; i++) LANE_OF(result[n + i], l) = logs ? mine[i] : 0;
  }
  PULL(m, EVENT_DERIVATIVE, at, &e->t, y, result, instances, on, g->bar, &tbar, bars);
  g->bar[k->time] += tbar;
  for (int64_t i = 0; i < n; i++) g->ybar[i] = JOIN(select, NAME)(on, g->bar[i], g->ybar[i]);
}

/* The cotangents of parameters, initial state and times, from those of the saved states and the final state: one sweep
   backward over the accepted steps. The derivative pulls a cotangent of
   the slope back to the parameters, to the time if there are cotangents of times, and to the state. */
static int JOIN(sweep_cotangents, NAME)(const Motion *m, const int64_t *instances, const int64_t valid) {
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), moving = MOVING(m), s = STAGES(m), batch = m->call.batch, parameters = PARAMETERS(m);
  const int implicit = IMPLICIT(m), timed = m->dts.data != NULL;
  JOIN(Steps, NAME) a;
  JOIN(begin_steps, NAME)(&a, m, instances);
  const int64_t most = LONGEST_STRIDE(a);
  WORKSPACE(memory, ALL_SLOTS(m) + 2 * moving * s + n * (s + 5 + most) + parameters + ROOM_OF_EVENT(m) + 2 * (RESULTS(m, CLOSING) + ROOM_OF_WORK(m) + ROOM_OF_FOUND(m)))
  EACH_PROGRAM(TAKE_SLOTS)
  ROOM(f, MOVING(m) * STAGES(m)) ROOM(fbar, MOVING(m) * STAGES(m)) ROOM(stage, STATES(m) * STAGES(m))
  ROOM(ybar, STATES(m)) ROOM(next, STATES(m)) ROOM(bar, STATES(m)) ROOM(y, STATES(m)) ROOM(between, STATES(m) * LONGEST_STRIDE(a))
  ROOM(bars, PARAMETERS(m)) ROOM(result, ROOM_OF_EVENT(m))
  ROOM(from, CLOSES(m) ? STATES(m) : 0) ROOM(closed, RESULTS(m, CLOSING)) ROOM(closed_bar, RESULTS(m, CLOSING))
  ROOM(work, ROOM_OF_WORK(m)) ROOM(work_bar, ROOM_OF_WORK(m)) ROOM(found, ROOM_OF_FOUND(m)) ROOM(found_bar, ROOM_OF_FOUND(m))
  V *const at[PROGRAMS] = {EACH_PROGRAM(AT_SLOTS)};
  const JOIN(Again, NAME) again = {at, {at, from, closed, closed_bar}, {at, work, work_bar, found, found_bar}, JOIN(settles, NAME)(m, instances)};
  JOIN(Again, NAME) inside = again; /* the last components of the state are those at the start of the step */
  inside.settles = 0;
  memset(between, 0, (size_t)(n * most) * sizeof(V)), memset(bars, 0, (size_t)parameters * sizeof(V));
  JOIN(begin_all, NAME)(m, at, instances);
  JOIN(gather_lanes, NAME)(m, &m->dy0, instances, ybar);
  for (int64_t l = 0; timed && l < valid; l++) {
    memset(JOIN(row, NAME)(&m->dts, batch, instances[l]), 0, (size_t)m->ts.size * sizeof(T));
    *JOIN(row, NAME)(&m->dt0, batch, instances[l]) = *JOIN(row, NAME)(&m->dt1, batch, instances[l]) = 0;
    if (m->switches.size)
      memset(JOIN(row, NAME)(&m->dswitches, batch, instances[l]), 0, (size_t)m->switches.size * sizeof(T));
  }
  for (int64_t i = a.steps - 1; i >= 0; i--) {
    const JOIN(Step, NAME) e = JOIN(common_step, NAME)(m, &a, instances, i);
    JOIN(Cotangents, NAME) g = {stage, f, fbar, ybar, bar, ALL(0), ALL(0)};
    JOIN(restore, NAME)(m, &a, i, &again, result, stage, f, next, between, y, instances);
    if (EVENTS(m)) JOIN(pull_event, NAME)(m, &a, &e, at, y, result, &g, bars, instances);
    JOIN(step, NAME)(m, &inside, e.t, e.end, y, stage, f, next, instances);
    V endbar = {0};
    JOIN(pull_closing, NAME)(m, &again.closing, &e.end, ybar, bar, &endbar, bars, JOIN(eq, NAME)(e.h, ALL(0)), instances);
    g.startbar += endbar, g.hbar += endbar;
    if (implicit) { /* the end of the step is no sum of the start and of slopes */
      const V rests = JOIN(eq, NAME)(e.h, ALL(0));
      memset(fbar, 0, (size_t)(moving * s) * sizeof(V)), memcpy(next, ybar, (size_t)n * sizeof(V));
      for (int64_t k = 0; k < n; k++) ybar[k] = JOIN(select, NAME)(rests, ybar[k], ALL(0));
    }
    for (int64_t j = 0; j < s && !implicit; j++)
      for (int64_t k = 0; k < moving; k++) fbar[j * moving + k] = ALL(q->b[j]) * e.h * ybar[k];
    for (int64_t k = 0; k < moving && !implicit; k++) g.hbar += ybar[k] * JOIN(combine, NAME)(q->b, s, f + k, moving);
    JOIN(pull_saved, NAME)(m, &a, &e, &g, instances, valid);
    if (implicit) JOIN(pull_implicit, NAME)(m, &again.newton, e.t, e.h, fbar, next, ybar, &g.startbar, &g.hbar, bars, instances);
    else JOIN(pull_stages, NAME)(m, at, &e, &g, bars, instances);
    if (timed) JOIN(pull_ends, NAME)(m, &a, &e, &g, instances, valid);
  }
  for (int64_t l = 0; l < valid; l++) {
    T *state = JOIN(row, NAME)(&m->y_end, batch, instances[l]);
    for (int64_t k = 0; k < n; k++) state[k] = LANE_OF(ybar[k], l);
    JOIN(deliver, NAME)(m, bars, l, instances[l]);
  }
  if (!implicit) COUNT(m, RATE, 2 * s * a.steps), COUNT(m, DERIVATIVE, s * a.steps);
  RELEASE(memory)
  return 1;
}
