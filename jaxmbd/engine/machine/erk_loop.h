/* Runge-Kutta methods around programs: the whole time loop in one call; explicit ones around a program `f(parameters..., t, y)`.
   For numbers of type T and LANES instances side by side, each with times and steps of its own; a lane that has finished takes
   the next instance, and if none is left goes on with steps of length zero. Steps, step-size control and saved states are those of diffrax (`_integrate.py`,
   `_step_size_controller/pid.py`, `constant.py`). */

/* The numbers of an operand or a result for an instance; lanes beyond the last instance repeat it. */
static inline T *JOIN(row, NAME)(const Array *a, const int64_t batch, const int64_t instance) {
  return (T *)a->data + (a->varies ? a->size * (instance < batch ? instance : batch - 1) : 0);
}

/* The state of each lane from an array. */
static void JOIN(gather_lanes, NAME)(const Motion *m, const Array *a, const int64_t *instances, V *x) {
  EACH_LANE {
    const T *mine = JOIN(row, NAME)(a, m->call.batch, instances[l]);
    for (int64_t k = 0; k < a->size; k++) LANE_OF(x[k], l) = mine[k];
  }
}

/* The sum of weights times slopes, `f (stages, n)`, without weights that are zero. Slopes are those of the components of the
   state that move within a step, the first ones; the others are constant there. */
static inline V JOIN(combine, NAME)(const double *weights, const int64_t count, const V *f, const int64_t n) {
  V sum = {0};
  for (int64_t j = 0; j < count; j++)
    if (weights[j] != 0) sum = JOIN(fma, NAME)(ALL(weights[j]), f[j * n], sum);
  return sum;
}

/* The weights `b(theta)` of the dense output, and their derivatives. */
static inline void JOIN(dense_weights, NAME)(const Tableau *q, const V theta, V *w, V *dw) {
  for (int64_t i = 0; i < q->stages; i++) {
    const double *coefficients = q->dense + i * (q->degree + 1);
    V value = ALL(coefficients[0]), slope = {0};
    for (int64_t d = 1; d <= q->degree; d++) slope = slope * theta + value, value = value * theta + ALL(coefficients[d]);
    w[i] = value;
    if (dw) dw[i] = slope;
  }
}

/* The state `y` at the end `t` of a step, with the last components as the program of what happens after it sets them. */
INLINE void JOIN(settle, NAME)(const Motion *m, V *const *at, const V *t, V *y, const int64_t *instances) {
  SLOPE(m, AFTER, at, t, y, instances, y + STATES(m) - RESULTS(m, AFTER));
}

/* --- switching times -------------------------------------------------------------------------------------- */

/* The slope may jump at a switching time, so steps end there: those of an instance are sorted, and those outside its motion are
   larger than any time. The record holds the time itself; what is evaluated is a little before it at the end of a step, and a
   little after it at the start of the next one, so that it is on one side (`switching.py`). */

/* The number of the switching time that is `t`, or -1. */
static int64_t JOIN(switch_at, NAME)(const Motion *m, const int64_t instance, const T t) {
  int64_t low = 0, high = m->switches.size;
  if (!high) return -1;
  const T *times = JOIN(row, NAME)(&m->switches, m->call.batch, instance);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (times[middle] < t) low = middle + 1;
    else high = middle;
  }
  return low < m->switches.size && times[low] == t ? low : -1;
}

/* Moves the ends of a step inside it from switching times. */
static void JOIN(stay_inside, NAME)(const Motion *m, const int64_t instance, T *begin, T *end) {
  if (!m->switches.size) return;
  const T larger = M(fabs)(*begin) > M(fabs)(*end) ? M(fabs)(*begin) : M(fabs)(*end);
  const T nudge = (sizeof(T) == 8 ? (T)4.440892098500626e-16 : (T)2.384185791015625e-7) * larger; /* two units of rounding */
  const int starts = JOIN(switch_at, NAME)(m, instance, *begin) >= 0, ends = JOIN(switch_at, NAME)(m, instance, *end) >= 0;
  if (starts) *begin += nudge;
  if (ends) *end = *end - nudge > *begin ? *end - nudge : *begin;
}

/* --- step-size control ------------------------------------------------------------------------------------ */

/* With events (`erk_events.h`): `due`, 1 if one is to happen; `fresh`, 1 if the heights at the start of the step are not
   known; `aimed`, the event to whose root the step is taken again, for the `tries`th time, not beyond `latest`; `resumed`, the
   length of the first step after an event. `longest`: of the steps for which Newton's method is expected to converge.
   `proposed`: the end of the step before a switching time was put in its place; `following`: the first of these that is not
   passed; `switched`: 1 if the step starts at one. */
typedef struct {
  T t0, t1, t1_floor, tprev, tnext, latest, resumed, longest, proposed;
  T inverse[2]; /* the inverse scaled errors of the last two accepted steps */
  int64_t next, planned, base, aimed, tries, following;
  int active, at_dtmin, due, fresh, switched;
  int64_t counts[COUNTS];
} JOIN(Lane, NAME);

/* Ends the next step at a switching time, if there is one in it, or so near that a tiny step would be left. */
static void JOIN(stop_at_switch, NAME)(JOIN(Lane, NAME) *a, const Motion *m, const int64_t instance) {
  const T stretched = a->tnext + (T)1e-3 * (a->tnext - a->tprev);
  a->proposed = a->tnext;
  if (!m->switches.size) return;
  const T *times = JOIN(row, NAME)(&m->switches, m->call.batch, instance);
  while (a->following < m->switches.size && times[a->following] <= a->tprev) a->following++;
  if (a->following < m->switches.size && times[a->following] < stretched) a->tnext = times[a->following];
}

/* Plans the steps from here to the end, the first one of length `h`: at the start of a motion, and again after an event. */
static void JOIN(plan, NAME)(JOIN(Lane, NAME) *a, const Motion *m, const int64_t instance, const T h) {
  a->t0 = a->tprev, a->base = a->counts[STEPS], a->inverse[0] = a->inverse[1] = 1;
  if (!m->adaptive) a->planned = (int64_t)M(ceil)((a->t1 - a->t0) / M(nextafter)(h, (T)INFINITY));
  a->tnext = a->t0 + h > a->t1_floor ? a->t1 : a->t0 + h;
  JOIN(stop_at_switch, NAME)(a, m, instance);
}

static void JOIN(begin_lane, NAME)(JOIN(Lane, NAME) *a, const Motion *m, const int64_t instance) {
  const T *k = JOIN(row, NAME)(&m->control, m->call.batch, instance);
  T h = *JOIN(row, NAME)(&m->h0, m->call.batch, instance);
  memset(a, 0, sizeof *a);
  a->tprev = *JOIN(row, NAME)(&m->t0, m->call.batch, instance);
  a->t1 = a->t1_floor = *JOIN(row, NAME)(&m->t1, m->call.batch, instance);
  for (int i = 0; i < 100; i++) a->t1_floor = M(nextafter)(a->t1_floor, (T)-INFINITY);
  if (m->adaptive) {
    h = h < k[DTMAX] ? h : k[DTMAX];
    h = h > k[DTMIN] ? h : k[DTMIN];
  }
  JOIN(plan, NAME)(a, m, instance, h);
  a->resumed = h, a->longest = INFINITY, a->aimed = -1, a->due = a->fresh = EVENTS(m) > 0;
  a->active = a->tprev < a->t1;
}

/* True if a step with a scaled error is accurate enough. */
static inline int JOIN(is_kept, NAME)(const JOIN(Lane, NAME) *a, const Motion *m, const T error) {
  return !m->adaptive || error < 1 || a->at_dtmin;
}

/* Decides on a step with a scaled error, and sets the ends of the next one. Returns 1 if the step is accepted. */
static int JOIN(control, NAME)(JOIN(Lane, NAME) *a, const Motion *m, const int64_t instance, const T *k, const T error) {
  const T h = a->tnext - a->tprev, whole = a->proposed - a->tprev;
  const int is_cut = whole > h; /* else the length to which the step was cut would be that to go on from */
  int keep = 1;
  T start, end;
  if (m->adaptive) {
    keep = JOIN(is_kept, NAME)(a, m, error);
    T inverse = 1 / error;
    T factor = k[SAFETY];
    if (k[COEFFICIENT_1] != 0) factor *= M(pow)(inverse, k[COEFFICIENT_1]);
    if (k[COEFFICIENT_2] != 0) factor *= M(pow)(a->inverse[0], k[COEFFICIENT_2]);
    if (k[COEFFICIENT_3] != 0) factor *= M(pow)(a->inverse[1], k[COEFFICIENT_3]);
    const T least = keep ? 1 : k[FACTORMIN], most = keep ? k[FACTORMAX] : k[SAFETY];
    factor = !(factor > least) ? least : factor > most ? most : factor;
    T dt = h * factor;
    /* Otherwise each accurate step would be followed by one that is too long for Newton's method, which fails again. */
    if (IMPLICIT(m)) {
      a->longest = isinf(error) ? (T)0.8 * h : (T)1.03 * a->longest;
      if (dt > a->longest) dt = a->longest;
    }
    if (keep && is_cut && dt < whole) dt = whole;
    if (inverse == 0 || isinf(inverse)) inverse = 1;
    if (dt > k[DTMAX]) dt = k[DTMAX];
    if (k[DTMIN] > 0) {
      if (!m->force_dtmin && dt < k[DTMIN]) a->counts[RESULT] = STEP_TOO_SMALL;
      if (a->at_dtmin && factor == 1) dt = k[DTMIN];
      a->at_dtmin = dt <= k[DTMIN];
      if (a->at_dtmin) dt = k[DTMIN];
    }
    if (keep) a->inverse[1] = a->inverse[0], a->inverse[0] = inverse;
    start = keep ? a->tnext : a->tprev, end = start + dt;
  } else { /* at a switching time a step is divided in two, and the others stay where they are */
    a->base += is_cut;
    const int64_t done = a->counts[STEPS] - a->base + 2;
    start = a->tnext;
    end = is_cut ? a->proposed : done == a->planned ? a->t1 : a->t0 + (a->t1 - a->t0) * ((T)done / (T)a->planned);
  }
  a->counts[STEPS]++, a->counts[keep ? ACCEPTED : REJECTED]++;
  a->tprev = start < a->t1 ? start : a->t1;
  a->tnext = end > a->t1_floor ? (keep ? a->t1 : a->tprev + (T)0.5 * (a->t1 - a->tprev)) : end;
  if (keep) a->switched = JOIN(switch_at, NAME)(m, instance, a->tprev) >= 0;
  JOIN(stop_at_switch, NAME)(a, m, instance);
  a->active = a->tprev < a->t1 && a->counts[RESULT] == 0;
  if (a->active && a->counts[STEPS] >= m->max_steps) a->active = 0, a->counts[RESULT] = STEPS_USED_UP;
  return keep;
}

/* --- the time loop ---------------------------------------------------------------------------------------- */

/* The states at the saved times within a step from `begin` to `end`, in the lanes that keep it and are at its end: one saved
   time of each lane after another. */
static void JOIN(save, NAME)(const Motion *m, JOIN(Lane, NAME) *lanes, const int64_t *instances, const V keep,
                             const V *y, const V *f, const V begin, const V end) {
  const int64_t n = MOVING(m), s = STAGES(m);
  const V h = end - begin;
  for (;;) {
    V w[STAGES(m)], theta = {0};
    T *mine[LANES] = {0}; /* where the state of a lane goes, NULL if it has none to save */
    int any = 0;
    EACH_LANE {
      int64_t *saved = &lanes[l].counts[SAVED];
      if (!LANE_OF(keep, l) || *saved >= m->ts.size) continue;
      const T t = JOIN(row, NAME)(&m->ts, m->call.batch, instances[l])[*saved];
      /* At the time of an event the state after it is saved. */
      if (!(t <= lanes[l].tprev) || (lanes[l].due && t == lanes[l].tprev)) continue;
      any = 1, mine[l] = JOIN(row, NAME)(&m->ys, m->call.batch, instances[l]) + n * (*saved)++;
      LANE_OF(theta, l) = LANE_OF(h, l) == 0 ? 0 : (t - LANE_OF(begin, l)) / LANE_OF(h, l);
    }
    if (!any) return;
    JOIN(dense_weights, NAME)(&m->method, theta, w, NULL);
    for (int64_t k = 0; k < n; k++) {
      V sum = {0};
      for (int64_t i = 0; i < s; i++) sum += w[i] * f[i * n + k];
      const V value = y[k] + h * sum;
      EACH_LANE if (mine[l]) mine[l][k] = LANE_OF(value, l);
    }
  }
}

/* Stores the start and the end of the step just accepted, which event it is, and its first state if it is a checkpoint. */
static void JOIN(record, NAME)(const Motion *m, const JOIN(Lane, NAME) *a, const int l, const int64_t instance, const V *y,
                               const T start, const T end, const T kind) {
  const int64_t i = a->counts[ACCEPTED] - 1, level = level_of(i, m->rows);
  JOIN(row, NAME)(&m->starts, m->call.batch, instance)[i] = start;
  JOIN(row, NAME)(&m->ends, m->call.batch, instance)[i] = end;
  if (EVENTS(m)) JOIN(row, NAME)(&m->kinds, m->call.batch, instance)[i] = kind;
  if (i % ((int64_t)1 << level)) return;
  T *mine = JOIN(row, NAME)(&m->checkpoints, m->call.batch, instance) + m->n * place_of(i, m->rows);
  for (int64_t k = 0; k < m->n; k++) mine[k] = LANE_OF(y[k], l);
}

/* For each lane the root of the weighted sum of the squares of the scaled errors; infinite if any is NaN, or if one
   without weight is not finite. */
static V JOIN(scaled_errors, NAME)(const Motion *m, const V rtol, const V atol, const V *y, const V *next, const V *f,
                                   const V h) {
  const int64_t n = MOVING(m);
  V sum = {0}, failed = {0};
  for (int64_t i = 0; i < n; i++) {
    const V before = JOIN(abs, NAME)(y[i]), after = JOIN(abs, NAME)(next[i]);
    const V error = h * JOIN(combine, NAME)(m->method.e, m->method.stages, f + i, n) /
                    JOIN(fma, NAME)(JOIN(select, NAME)(JOIN(lt, NAME)(before, after), after, before), rtol, atol);
    failed += JOIN(ne, NAME)(after, after);
    if (m->norm[i] != 0) sum = JOIN(fma, NAME)(ALL(m->norm[i]) * error, error, sum);
    else failed += JOIN(not, NAME)(JOIN(is_finite, NAME)(error));
  }
  const V norm = JOIN(sqrt, NAME)(sum);
  return JOIN(select, NAME)(failed + JOIN(ne, NAME)(norm, norm), ALL(INFINITY), norm);
}

#include "erk_events.h"

/* The results of a lane that has finished. */
static void JOIN(finish, NAME)(const Motion *m, JOIN(Lane, NAME) *a, const int l, const int64_t instance, const V *y) {
  const int64_t batch = m->call.batch;
  T *end = JOIN(row, NAME)(&m->y_end, batch, instance), *ys = JOIN(row, NAME)(&m->ys, batch, instance);
  for (int64_t k = 0; k < STATES(m); k++) end[k] = LANE_OF(y[k], l);
  for (int64_t k = MOVING(m) * a->counts[SAVED]; k < m->ys.size; k++) ys[k] = (T)INFINITY;
  *JOIN(row, NAME)(&m->t_end, batch, instance) = a->tprev;
  a->counts[ENGINE] = JOIN(engine, NAME)(&m->call);
  if (EVENTS(m)) {
    T *log = JOIN(row, NAME)(&m->log, batch, instance);
    for (int64_t k = (int64_t)LANE_OF(y[m->memory.logged], l) * ENTRY(m); k < m->log.size; k++) log[k] = 0;
  }
  for (int k = 0; k < COUNTS; k++) *counter(&m->counts[k], batch, instance) = (int32_t)a->counts[k];
}

/* A lane takes an instance: its times and steps, its state, and the tolerances of its errors. */
static void JOIN(enter, NAME)(const Motion *m, JOIN(Lane, NAME) *a, const int l, const int64_t instance, V *y, V *rtol, V *atol) {
  const int64_t batch = m->call.batch;
  const T *state = JOIN(row, NAME)(&m->y0, batch, instance), *k = JOIN(row, NAME)(&m->control, batch, instance);
  JOIN(begin_lane, NAME)(a, m, instance);
  for (int64_t i = 0; i < m->n; i++) LANE_OF(y[i], l) = state[i];
  LANE_OF(*rtol, l) = k[RTOL], LANE_OF(*atol, l) = k[ATOL];
}

/* The slots of each program; those of instances that wait for a lane; and how many these are. */
#define TAKE_SLOTS(program) ROOM(at_##program, SLOTS(m, program))
#define TAKE_WAITING(program) ROOM(waiting_##program, WAITS(last - first) * SLOTS(m, program))
#define AT_SLOTS(program) at_##program,
#define AT_WAITING(program) waiting_##program,
#define COUNT_SLOTS(program) + SLOTS(m, program)
#define ALL_SLOTS(m) (0 EACH_PROGRAM(COUNT_SLOTS))

/* What the program of an event gives: the state after it, and its entry in the log. */
#define ROOM_OF_EVENT(m) (EVENTS(m) ? STATES(m) + ENTRY(m) : 0)

/* Runs the instances from `first` up to but not including `last`; returns 0 if there is not enough memory. */
static int JOIN(solve, NAME)(const void *motion, const int64_t first, const int64_t last) {
  const Motion *m = (const Motion *)motion;
  const Tableau *q = &m->method;
  const int64_t batch = m->call.batch, n = STATES(m), moving = MOVING(m), s = STAGES(m), events = EVENTS(m);
  const int implicit = IMPLICIT(m), closes = CLOSES(m);
  WORKSPACE(memory, (1 + WAITS(last - first)) * ALL_SLOTS(m) + moving * s + 5 * n + 10 * events + ROOM_OF_EVENT(m) + RESULTS(m, CLOSING) + ROOM_OF_WORK(m) + ROOM_OF_FOUND(m))
  EACH_PROGRAM(TAKE_SLOTS) EACH_PROGRAM(TAKE_WAITING)
  ROOM(f, MOVING(m) * STAGES(m)) ROOM(y, STATES(m)) ROOM(stage, STATES(m)) ROOM(next, STATES(m))
  ROOM(heights, 10 * EVENTS(m)) ROOM(inside, EVENTS(m) ? STATES(m) : 0) ROOM(result, ROOM_OF_EVENT(m))
  ROOM(from, CLOSES(m) ? STATES(m) : 0) ROOM(closed, RESULTS(m, CLOSING)) ROOM(work, ROOM_OF_WORK(m)) ROOM(found, ROOM_OF_FOUND(m))
  V *const at[PROGRAMS] = {EACH_PROGRAM(AT_SLOTS)}, *const waiting[PROGRAMS] = {EACH_PROGRAM(AT_WAITING)};
  V *const at_end = heights + 2 * events, *const left = at_end + 2 * events, *const right = left + 2 * events;
  const JOIN(Watch, NAME) watch = {at, heights, at_end, left, right, right + 2 * events, inside, result};
  const JOIN(Closing, NAME) closing = {at, from, closed, NULL};
  const JOIN(Implicit, NAME) newton = {at, work, NULL, found, NULL};
  JOIN(Slots, NAME) slots = {m, at, waiting, first};
  JOIN(Lane, NAME) lanes[LANES];
  int64_t instances[LANES], following = first + LANES, evaluations = 0, watched_steps = 0;
  int busy[LANES], sought[LANES], any_unknown = 1, settles = 0;
  V rtol, atol, unknown; /* 1 in lanes whose slope at the start of the step is not known */
  JOIN(fill, NAME)(&slots, at, first);
  EACH_LANE {
    busy[l] = first + l < last, instances[l] = busy[l] ? first + l : last - 1;
    JOIN(enter, NAME)(m, &lanes[l], l, instances[l], y, &rtol, &atol);
    lanes[l].active &= busy[l], LANE_OF(unknown, l) = 1;
  }
  for (;;) {
    int active = 0;
    V begin = {0}, end = {0}, keep = {0}, error = {0}, failed = {0}, blind = {0}; /* 1 in lanes whose step has failed, or whose */
    int64_t unseen[LANES] = {0};                                                 /* events cannot be seen at its end */
    EACH_LANE {
      while (busy[l] && !lanes[l].active) {
        JOIN(finish, NAME)(m, &lanes[l], l, instances[l], y);
        busy[l] = following < last;
        if (!busy[l]) break;
        instances[l] = following++;
        JOIN(admit, NAME)(&slots, l, instances[l]);
        JOIN(enter, NAME)(m, &lanes[l], l, instances[l], y, &rtol, &atol);
        any_unknown = 1, LANE_OF(unknown, l) = 1;
      }
      T from = lanes[l].tprev, to = lanes[l].active ? lanes[l].tnext : lanes[l].tprev;
      JOIN(stay_inside, NAME)(m, instances[l], &from, &to);
      active |= lanes[l].active, LANE_OF(begin, l) = from, LANE_OF(end, l) = to;
    }
    if (!active) break;
    if (events && JOIN(let_happen, NAME)(m, &watch, lanes, instances, y, &unknown)) {
      any_unknown = 1;
      continue;
    }
    if (events) JOIN(watch_start, NAME)(m, &watch, lanes, instances, y, begin);
    const V h = end - begin;
    if (any_unknown) settles = JOIN(settles, NAME)(m, instances);
    for (int64_t k = moving; k < n; k++) stage[k] = y[k];
    if (implicit) failed = JOIN(implicit_step, NAME)(m, &newton, begin, end, y, f, next, instances);
    ROLLED for (int64_t i = implicit ? s : any_unknown ? 0 : 1; i < s; i++) {
      for (int64_t k = 0; k < moving; k++)
        stage[k] = i ? JOIN(fma, NAME)(h, JOIN(combine, NAME)(q->a + i * s, i, f + k, moving), y[k]) : y[k];
      const V t = !i ? begin : q->c[i] == 1 ? end : JOIN(fma, NAME)(ALL(q->c[i]), h, begin);
      SLOPE(m, RATE, at, &t, stage, instances, i ? f + i * moving : next);
      for (int64_t k = 0; !i && k < moving; k++) f[k] = JOIN(select, NAME)(unknown, next[k], f[k]);
      evaluations++;
    }
    if (evaluations > OFTEN) COUNT(m, RATE, evaluations), evaluations = 0;
    if (watched_steps > OFTEN) COUNT(m, GUARD, watched_steps), watched_steps = 0;
    for (int64_t k = 0; k < n && !implicit; k++)
      next[k] = k >= moving || q->ssal ? stage[k] : JOIN(fma, NAME)(h, JOIN(combine, NAME)(q->b, s, f + k, moving), y[k]);
    if (m->adaptive) error = JOIN(scaled_errors, NAME)(m, rtol, atol, y, next, f, h);
    const V rests = JOIN(eq, NAME)(h, ALL(0));
    failed = JOIN(or, NAME)(failed, JOIN(close, NAME)(m, &closing, &end, next, rests, instances));
    /* Shorter steps, where they are controlled; else the motion has failed. */
    error = JOIN(select, NAME)(failed, ALL(INFINITY), error);
    for (int64_t k = 0; (implicit || closes) && !m->adaptive && k < moving; k++)
      next[k] = JOIN(select, NAME)(failed, ALL(NAN), next[k]);
    if (settles) JOIN(settle, NAME)(m, at, &end, next, instances);
    if (events) {
      int wanted[LANES];
      next[m->memory.time] = end;
      SLOPE(m, GUARD, at, &end, next, instances, watch.end);
      watched_steps++;
      blind = JOIN(and, NAME)(JOIN(unknown_heights, NAME)(m, watch.end, unseen), JOIN(is_finite, NAME)(error));
      for (int64_t k = 0; k < moving; k++) blind = JOIN(and, NAME)(blind, JOIN(is_finite, NAME)(next[k]));
      failed = JOIN(or, NAME)(failed, blind), error = JOIN(select, NAME)(blind, ALL(INFINITY), error);
      EACH_LANE wanted[l] = lanes[l].active && lanes[l].aimed < 0 && LANE_OF(blind, l) == 0 &&
                            JOIN(is_kept, NAME)(&lanes[l], m, LANE_OF(error, l));
      JOIN(look_for_events, NAME)(m, &watch, lanes, instances, wanted, y, f, begin, h);
      EACH_LANE sought[l] = wanted[l] && lanes[l].aimed >= 0;
      for (int64_t j = m->memory.nearest; j < m->memory.nearest + events; j++) next[j] = y[j];
    }
    EACH_LANE {
      const T *k = JOIN(row, NAME)(&m->control, batch, instances[l]);
      JOIN(Lane, NAME) *a = &lanes[l];
      if (!a->active || (events && sought[l])) continue;
      const T start = a->tprev;
      const int to_root = a->aimed >= 0;
      if (LANE_OF(failed, l)) a->aimed = NOTHING; /* a step to a root, too, is tried again with another length */
      const int is_last = LANE_OF(blind, l) && JOIN(is_kept, NAME)(a, m, INFINITY); /* no shorter step is left */
      if (is_last) a->active = 0, a->counts[RESULT] = STEP_TOO_SMALL;
      const int kept = is_last     ? 0 :
                       a->aimed < 0 ? JOIN(control, NAME)(a, m, instances[l], k, LANE_OF(error, l)) :
                                      JOIN(reaches_event, NAME)(m, &watch, a, l, f, next);
      if (!kept) {
        if (LANE_OF(blind, l) && !a->active) LANE_OF(y[m->memory.due], l) = (T)(2 * events + unseen[l]);
        continue;
      }
      LANE_OF(keep, l) = 1;
      if (m->memory.samples && a->switched && !to_root) {
        LANE_OF(next[m->memory.due], l) = SAMPLE, a->due = 1;
        if (m->adaptive) a->resumed = a->proposed - a->tprev;
      }
      if (m->recorded) JOIN(record, NAME)(m, a, l, instances[l], y, start, a->tprev, NOTHING);
    }
    for (int64_t j = 0; j < 2 * events; j++) watch.begin[j] = JOIN(select, NAME)(keep, watch.end[j], watch.begin[j]);
    JOIN(save, NAME)(m, lanes, instances, keep, y, f, begin, end);
    for (int64_t k = 0; k < n; k++) y[k] = JOIN(select, NAME)(keep, next[k], y[k]);
    for (int64_t k = 0; q->fsal && !closes && k < moving; k++) f[k] = JOIN(select, NAME)(keep, f[(s - 1) * moving + k], f[k]);
    if (q->fsal && !closes) unknown = ALL(0), any_unknown = 0;
    EACH_LANE {
      if (!LANE_OF(keep, l) || !lanes[l].switched) continue;
      any_unknown = 1, LANE_OF(unknown, l) = 1, lanes[l].fresh = events > 0;
    }
  }
  COUNT(m, RATE, evaluations);
  if (events) COUNT(m, GUARD, watched_steps);
  RELEASE(memory)
  return 1;
}
