/* Sweeps over the accepted steps of a motion (`erk_loop.h`): forward with tangents, backward with cotangents. */

/* The recorded steps of the lanes, and what is still to be swept over. `stride`: of the checkpoints; `left`: the last of
   the saved times that are left; `most`: the longest stride. */
typedef struct {
  const T *starts[LANES], *ends[LANES], *ts[LANES];
  int64_t accepted[LANES], stride[LANES], left[LANES], steps, most;
} JOIN(Steps, NAME);

static void JOIN(begin_steps, NAME)(JOIN(Steps, NAME) *a, const Motion *m, const int64_t *instances) {
  const int64_t batch = m->call.batch;
  a->steps = 0, a->most = 1;
  EACH_LANE {
    a->starts[l] = JOIN(row, NAME)(&m->starts, batch, instances[l]), a->ends[l] = JOIN(row, NAME)(&m->ends, batch, instances[l]);
    a->ts[l] = JOIN(row, NAME)(&m->ts, batch, instances[l]);
    const int64_t accepted = a->accepted[l] = *counter(&m->counts[ACCEPTED], batch, instances[l]);
    a->left[l] = *counter(&m->counts[SAVED], batch, instances[l]) - 1;
    a->stride[l] = (int64_t)1 << (accepted ? level_of(accepted - 1, m->rows) : 0);
    if (accepted > a->steps) a->steps = accepted;
    if (a->stride[l] > a->most) a->most = a->stride[l];
  }
}

/* The ends of step `i` of each lane that is `wanted`, zero in the others. */
static void JOIN(ends, NAME)(const JOIN(Steps, NAME) *a, const int64_t *i, const int *wanted, V *t, V *end) {
  *t = *end = ALL(0);
  EACH_LANE if (wanted[l]) LANE_OF(*t, l) = a->starts[l][i[l]], LANE_OF(*end, l) = a->ends[l][i[l]];
}

/* --- tangents --------------------------------------------------------------------------------------------- */

/* Adds a scale times the sum of weights times slopes, `f (stages, n)`, to `x (n,)`. */
static inline void JOIN(combine_into, NAME)(V *x, const V scale, const double *weights, const int64_t count, const V *f,
                                            const int64_t n) {
  for (int64_t j = 0; j < count; j++) {
    if (weights[j] == 0) continue;
    const V factor = scale * ALL(weights[j]);
    for (int64_t k = 0; k < n; k++) x[k] = JOIN(fma, NAME)(factor, f[j * n + k], x[k]);
  }
}

/* The tangents of the saved states and the final state, from those of parameters, initial state and times, each along some
   directions: the program gives slopes and their tangents, and the accepted steps are those of the run. */
static int JOIN(sweep_tangents, NAME)(const Motion *m, const int64_t *instances, const int64_t valid) {
  const Call *c = &m->call;
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), s = STAGES(m), slots = SLOTS(m), others = SLOTS_AFTER(m), batch = c->batch;
  const int64_t directions = DIRECTIONS(m), all = directions * n, times = m->ts.size, timed = m->dts.data != NULL;
  WORKSPACE(memory, slots + others + (n + all) * (s + 2) + n + 3 * directions)
  ROOM(x, slots) ROOM(z, others) ROOM(f, n * s) ROOM(df, all * s) ROOM(y, n) ROOM(dy, all) ROOM(stage, n) ROOM(dstage, all)
  ROOM(slope, n) ROOM(dt0, directions) ROOM(dh, directions) ROOM(dt, directions)
  JOIN(Steps, NAME) a;
  JOIN(begin_steps, NAME)(&a, m, instances);
  const T *dt_first[LANES], *dt_last[LANES], *dts[LANES];
  T t1[LANES];
  int64_t next[LANES];
  JOIN(begin, NAME)(m, x, instances);
  const Motion *after = JOIN(after, NAME)(m, instances);
  if (after) JOIN(begin, NAME)(after, z, instances);
  JOIN(gather_lanes, NAME)(m, &m->y0, instances, y);
  if (m->dy0.data) JOIN(gather_lanes, NAME)(m, &m->dy0, instances, dy);
  else memset(dy, 0, (size_t)all * sizeof(V));
  EACH_LANE {
    t1[l] = *JOIN(row, NAME)(&m->t1, batch, instances[l]);
    dts[l] = JOIN(row, NAME)(&m->dts, batch, instances[l]);
    dt_first[l] = JOIN(row, NAME)(&m->dt0, batch, instances[l]), dt_last[l] = JOIN(row, NAME)(&m->dt1, batch, instances[l]);
    next[l] = 0;
  }
  for (int64_t i = 0; i < a.steps; i++) {
    V t0, end;
    int64_t same[LANES];
    int active[LANES];
    EACH_LANE same[l] = i, active[l] = i < a.accepted[l];
    JOIN(ends, NAME)(&a, same, active, &t0, &end);
    const V h = end - t0;
    for (int64_t d = 0; d < directions; d++) {
      dt0[d] = dh[d] = ALL(0);
      EACH_LANE {
        if (!timed || !active[l]) continue;
        if (i == 0) LANE_OF(dt0[d], l) = dt_first[l][d];
        LANE_OF(dh[d], l) = (i == a.accepted[l] - 1 && LANE_OF(end, l) >= t1[l] ? dt_last[l][d] : 0) - LANE_OF(dt0[d], l);
      }
    }
    ROLLED for (int64_t j = 0; j < s; j++) {
      if (j == 0 && i && q->fsal) { /* lanes that go on have their slope at the end of the step before */
        for (int64_t k = 0; k < n; k++) f[k] = f[(s - 1) * n + k];
        for (int64_t k = 0; k < all; k++) df[k] = df[(s - 1) * all + k];
        continue;
      }
      for (int64_t k = 0; k < n; k++) {
        slope[k] = JOIN(combine, NAME)(q->a + j * s, j, f + k, n);
        stage[k] = y[k] + h * slope[k];
      }
      for (int64_t d = 0; d < directions; d++) {
        for (int64_t k = 0; k < n; k++) dstage[d * n + k] = dy[d * n + k] + dh[d] * slope[k];
        dt[d] = dt0[d] + ALL(q->c[j]) * dh[d];
      }
      JOIN(combine_into, NAME)(dstage, h, q->a + j * s, j, df, all);
      const V t = q->c[j] == 1 ? end : t0 + ALL(q->c[j]) * h;
      JOIN(tangent, NAME)(m, x, &t, stage, dt, dstage, instances, f + j * n, df + j * all);
    }
    for (int any = 1; any;) { /* one saved time of each lane after another */
      V w[STAGES(m)], dw[STAGES(m)], theta = {0};
      T *mine[LANES] = {0};
      const T *moves[LANES] = {0};
      any = 0;
      for (int64_t l = 0; l < valid; l++) {
        if (!active[l] || next[l] > a.left[l]) continue;
        const T time = a.ts[l][next[l]];
        if (!(time <= LANE_OF(end, l)) && i != a.accepted[l] - 1) continue;
        LANE_OF(theta, l) = LANE_OF(h, l) == 0 ? 0 : (time - LANE_OF(t0, l)) / LANE_OF(h, l);
        moves[l] = timed ? dts[l] + next[l] : NULL;
        any = 1, mine[l] = JOIN(row, NAME)(&m->ys, batch, instances[l]) + n * next[l]++;
      }
      if (any) JOIN(dense_weights, NAME)(q, theta, w, dw);
      for (int64_t d = 0; any && d < directions; d++) {
        V moved = {0};
        EACH_LANE if (moves[l]) LANE_OF(moved, l) = moves[l][d * times];
        moved -= dt0[d] + theta * dh[d];
        for (int64_t k = 0, at = d * n; k < n; k++, at++) {
          V value = dy[at];
          for (int64_t j = 0; j < s; j++)
            value += h * w[j] * df[j * all + at] + (dh[d] * w[j] + moved * dw[j]) * f[j * n + k];
          EACH_LANE if (mine[l]) mine[l][d * times * n + k] = LANE_OF(value, l);
        }
      }
    }
    for (int64_t k = 0; k < n; k++) {
      slope[k] = JOIN(combine, NAME)(q->b, s, f + k, n);
      y[k] += h * slope[k];
      for (int64_t d = 0; d < directions; d++) dy[d * n + k] += dh[d] * slope[k];
    }
    JOIN(combine_into, NAME)(dy, h, q->b, s, df, all);
    JOIN(settle, NAME)(after, z, &end, y, instances);
  }
  for (int64_t l = 0; l < valid; l++) {
    T *state = JOIN(row, NAME)(&m->y_end, batch, instances[l]), *dys = JOIN(row, NAME)(&m->ys, batch, instances[l]);
    for (int64_t k = 0; k < all; k++) state[k] = LANE_OF(dy[k], l);
    for (int64_t d = 0; d < directions; d++)
      for (int64_t k = n * next[l]; k < times * n; k++) dys[d * times * n + k] = 0;
  }
  JOIN(count, NAME)(c, s * a.steps);
  RELEASE(memory)
  return 1;
}

/* --- cotangents ------------------------------------------------------------------------------------------- */

/* The stages and slopes of a step from `t` to `end` that starts at `y`, and its end in `next`. */
static void JOIN(step, NAME)(const Motion *m, V *x, const Motion *after, V *u, const V t, const V end, const V *y, V *stage,
                             V *f, V *next, const int64_t *instances) {
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), s = STAGES(m);
  const V h = end - t;
  ROLLED for (int64_t j = 0; j < s; j++) {
    V at = q->c[j] == 1 ? end : t + ALL(q->c[j]) * h;
    for (int64_t k = 0; k < n; k++) stage[j * n + k] = y[k] + h * JOIN(combine, NAME)(q->a + j * s, j, f + k, n);
    JOIN(slope, NAME)(m, x, &at, stage + j * n, instances, f + j * n);
  }
  for (int64_t k = 0; k < n; k++) next[k] = y[k] + h * JOIN(combine, NAME)(q->b, s, f + k, n);
  JOIN(settle, NAME)(after, u, &end, next, instances);
}

/* The first states of the steps since the last checkpoint up to step `i`, computed again in the lanes that reach the end of
   such a part of the motion; and in `y` that of step `i`. */
static void JOIN(restore, NAME)(const Motion *m, const JOIN(Steps, NAME) *a, const int64_t i, V *x, const Motion *after,
                                V *u, V *stage, V *f, V *next, V *between, V *y, const int64_t *instances) {
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
    JOIN(ends, NAME)(a, step, fresh, &t, &end);
    JOIN(step, NAME)(m, x, after, u, t, end, between + n * j, stage, f, next, instances);
    for (int64_t k = 0; k < n; k++) EACH_LANE if (fresh[l]) LANE_OF(between[n * (j + 1) + k], l) = LANE_OF(next[k], l);
    EACH_LANE step[l] += fresh[l];
  }
  for (int64_t k = 0; k < n; k++) EACH_LANE LANE_OF(y[k], l) = LANE_OF(between[n * (i % a->stride[l]) + k], l);
}

/* The cotangents of parameters, initial state and times, from those of the saved states and the final state: one sweep
   backward over the accepted steps. `m` evaluates slopes; `pull`, of the same motion and beside it, pulls a cotangent of the slope back
   to the parameters, to the time if there are cotangents of times, and to the state. */
static int JOIN(sweep_cotangents, NAME)(const Motion *m, const int64_t *instances, const int64_t valid) {
  const Motion *pull = m + 1;
  const Tableau *q = &m->method;
  const int64_t n = STATES(m), s = STAGES(m), batch = m->call.batch, timed = pull->dts.data != NULL;
  JOIN(Steps, NAME) a;
  JOIN(begin_steps, NAME)(&a, m, instances);
  const int64_t slots = SLOTS(m), pulled = SLOTS_BESIDE(m), others = SLOTS_AFTER(m);
  const int64_t most = LONGEST_STRIDE(a), parameters = PARAMETERS(pull);
  WORKSPACE(memory, slots + pulled + others + n * (3 * s + 4 + most) + parameters)
  ROOM(x, slots) ROOM(z, pulled) ROOM(u, others) ROOM(f, n * s) ROOM(fbar, n * s) ROOM(stage, n * s)
  ROOM(ybar, n) ROOM(next, n) ROOM(bar, n) ROOM(y, n) ROOM(between, n * most) ROOM(bars, parameters)
  memset(between, 0, (size_t)(n * most) * sizeof(V)), memset(bars, 0, (size_t)parameters * sizeof(V));
  JOIN(begin, NAME)(m, x, instances), JOIN(begin, NAME)(pull, z, instances);
  const Motion *after = JOIN(after, NAME)(m, instances);
  if (after) JOIN(begin, NAME)(after, u, instances);
  JOIN(gather_lanes, NAME)(m, &m->dy0, instances, ybar);
  for (int64_t l = 0; timed && l < valid; l++) {
    memset(JOIN(row, NAME)(&pull->dts, batch, instances[l]), 0, (size_t)m->ts.size * sizeof(T));
    *JOIN(row, NAME)(&pull->dt0, batch, instances[l]) = *JOIN(row, NAME)(&pull->dt1, batch, instances[l]) = 0;
  }
  for (int64_t i = a.steps - 1; i >= 0; i--) {
    V t, end, w[STAGES(m)], dw[STAGES(m)], hbar = {0}, startbar = {0};
    int64_t same[LANES];
    int active[LANES];
    EACH_LANE same[l] = i, active[l] = i < a.accepted[l];
    JOIN(restore, NAME)(m, &a, i, x, after, u, stage, f, next, between, y, instances);
    JOIN(ends, NAME)(&a, same, active, &t, &end);
    const V h = end - t;
    JOIN(step, NAME)(m, x, NULL, NULL, t, end, y, stage, f, next, instances);
    for (int64_t j = 0; j < s; j++)
      for (int64_t k = 0; k < n; k++) fbar[j * n + k] = ALL(q->b[j]) * h * ybar[k];
    for (int64_t k = 0; k < n; k++) hbar += ybar[k] * JOIN(combine, NAME)(q->b, s, f + k, n);
    for (;;) { /* one saved time of each lane after another */
      V theta = {0}, moved = {0};
      int64_t due[LANES];
      int any = 0;
      EACH_LANE {
        due[l] = active[l] && a.left[l] >= 0 && (a.ts[l][a.left[l]] > LANE_OF(t, l) || i == 0) ? a.left[l]-- : -1;
        if (due[l] < 0) continue;
        any = 1, LANE_OF(theta, l) = LANE_OF(h, l) == 0 ? 0 : (a.ts[l][due[l]] - LANE_OF(t, l)) / LANE_OF(h, l);
      }
      if (!any) break;
      for (int64_t k = 0; k < n; k++)
        EACH_LANE LANE_OF(bar[k], l) = due[l] < 0 ? 0 : JOIN(row, NAME)(&m->dys, batch, instances[l])[due[l] * n + k];
      JOIN(dense_weights, NAME)(q, theta, w, dw);
      for (int64_t j = 0; j < s; j++) {
        V product = {0};
        for (int64_t k = 0; k < n; k++) product += bar[k] * f[j * n + k], fbar[j * n + k] += h * w[j] * bar[k];
        hbar += (w[j] - theta * dw[j]) * product, moved += dw[j] * product;
      }
      for (int64_t l = 0; timed && l < valid; l++)
        if (due[l] >= 0) JOIN(row, NAME)(&pull->dts, batch, instances[l])[due[l]] += LANE_OF(moved, l);
      startbar -= moved;
      for (int64_t k = 0; k < n; k++) ybar[k] += bar[k];
    }
    ROLLED for (int64_t j = s - 1; j >= 0; j--) {
      V on = {0}; /* 1 in lanes with a cotangent of this slope */
      for (int64_t k = 0; k < n; k++) on = JOIN(or, NAME)(on, JOIN(ne, NAME)(fbar[j * n + k], ALL(0)));
      int any = 0;
      EACH_LANE any |= LANE_OF(on, l) != 0;
      if (!any) continue;
      V at = q->c[j] == 1 ? end : t + ALL(q->c[j]) * h, tbar = {0};
      JOIN(pull, NAME)(pull, z, &at, stage + j * n, fbar + j * n, instances, on, bar, &tbar, bars);
      tbar = JOIN(select, NAME)(on, tbar, ALL(0));
      startbar += tbar, hbar += ALL(q->c[j]) * tbar;
      for (int64_t k = 0; k < n; k++) {
        bar[k] = JOIN(select, NAME)(on, bar[k], ALL(0));
        hbar += bar[k] * JOIN(combine, NAME)(q->a + j * s, j, f + k, n), ybar[k] += bar[k];
        for (int64_t e = 0; e < j; e++) fbar[e * n + k] += ALL(q->a[j * s + e]) * h * bar[k];
      }
    }
    for (int64_t l = 0; timed && l < valid; l++) {
      if (!active[l]) continue;
      const T t1 = *JOIN(row, NAME)(&m->t1, batch, instances[l]);
      if (i == 0) *JOIN(row, NAME)(&pull->dt0, batch, instances[l]) += LANE_OF(startbar, l) - LANE_OF(hbar, l);
      if (i == a.accepted[l] - 1 && a.ends[l][i] >= t1) *JOIN(row, NAME)(&pull->dt1, batch, instances[l]) += LANE_OF(hbar, l);
    }
  }
  for (int64_t l = 0; l < valid; l++) {
    T *state = JOIN(row, NAME)(&m->y_end, batch, instances[l]);
    for (int64_t k = 0; k < n; k++) state[k] = LANE_OF(ybar[k], l);
    JOIN(deliver, NAME)(pull, bars, l, instances[l]);
  }
  JOIN(count, NAME)(&m->call, 2 * s * a.steps), JOIN(count, NAME)(&pull->call, s * a.steps);
  RELEASE(memory)
  return 1;
}
