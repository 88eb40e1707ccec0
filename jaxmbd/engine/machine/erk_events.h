/* Events in the time loop (`erk_loop.h`) and in the sweeps over its steps (`erk_sweeps.h`).

   The state holds a memory beside coordinates and speeds (`Memory` in `motion.h`): constant within a step, changed by events
   alone, but for how near their quantities came to their values. The program of the guards gives for each event its height,
   which is positive until it happens, and the rate of that. A step in which a height becomes negative is taken again to the
   root. An event is an entry of zero length in the record of steps: the program of what it does gives the state after it and
   what the log is to hold. Which event that is, the component `due` of the memory says (`motion.h`).

   The end of a step that is a root moves with the parameters. The program of an event therefore follows the motion from there
   to the root, a path of length zero, and the end of the step itself is a constant. */

/* --- in a run --------------------------------------------------------------------------------------------- */

/* What a run with events works on: the slots of the programs; heights and their rates at the start and the end of a step, at
   those of a part of it, and within that; a state within a step; and the result of an event. */
typedef struct {
  V *const *at;
  V *begin, *end, *left, *right, *inside, *state, *result;
} JOIN(Watch, NAME);

/* The lowest of the heights in a lane, and in `which` the event that has it. */
static T JOIN(lowest, NAME)(const Motion *m, const V *heights, const int l, int64_t *which) {
  T least = INFINITY;
  for (int64_t j = 0; j < EVENTS(m); j++)
    if (LANE_OF(heights[j], l) < least) least = LANE_OF(heights[j], l), *which = j;
  return least;
}

/* 1 in lanes in which a height at the end of a step is no number, and in `which` the event that has it. */
static V JOIN(unknown_heights, NAME)(const Motion *m, const V *heights, int64_t *which) {
  V found = {0};
  for (int64_t j = EVENTS(m) - 1; j >= 0; j--) {
    const V here = JOIN(ne, NAME)(heights[j], heights[j]);
    found = JOIN(or, NAME)(found, here);
    EACH_LANE which[l] = LANE_OF(here, l) != 0 ? j : which[l];
  }
  return found;
}

/* The heights within a step, a part `theta` of it after its start. */
static void JOIN(heights_inside, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, const int64_t *instances, const V *y,
                                       const V *f, const V begin, const V h, const V theta) {
  const int64_t n = MOVING(m), s = STAGES(m);
  V weights[STAGES(m)];
  const V t = begin + theta * h;
  JOIN(dense_weights, NAME)(&m->method, theta, weights, NULL);
  for (int64_t k = 0; k < n; k++) {
    V sum = {0};
    for (int64_t i = 0; i < s; i++) sum += weights[i] * f[i * n + k];
    w->state[k] = y[k] + h * sum;
  }
  for (int64_t k = n; k < STATES(m); k++) w->state[k] = y[k];
  w->state[m->memory.time] = t;
  SLOPE(m, GUARD, w->at, &t, w->state, instances, w->inside);
}

/* The cubic polynomial through heights `h0`, `h1` and rates `r0`, `r1` at the ends of an interval of length 1. */
static inline T JOIN(cubic, NAME)(const T h0, const T r0, const T h1, const T r1, const T x) {
  const T rise = h1 - h0;
  return h0 + x * (r0 + x * (3 * rise - 2 * r0 - r1 + x * (r0 + r1 - 2 * rise)));
}

/* Where in the interval it is least. */
static T JOIN(least_at, NAME)(const T h0, const T r0, const T h1, const T r1) {
  const T rise = h1 - h0, c = 3 * rise - 2 * r0 - r1, root = c * c - 3 * (r0 + r1 - 2 * rise) * r0;
  return r0 < 0 && r1 > 0 && root >= 0 ? -r0 / (c + M(sqrt)(root)) : h1 < h0;
}

/* A root of it, if it is positive at 0 and negative at 1. */
static T JOIN(root_of_cubic, NAME)(const T h0, const T r0, const T h1, const T r1) {
  T low = 0, high = 1;
  for (int k = 0; k < 20; k++) {
    const T middle = (T)0.5 * (low + high);
    if (JOIN(cubic, NAME)(h0, r0, h1, r1, middle) > 0) low = middle;
    else high = middle;
  }
  return (T)0.5 * (low + high);
}

/* A part of a step in a lane in which the first root is looked for, `from` one part of the way `to` another. */
typedef struct {
  T from, to;
  int looking, found;
  int64_t which;
} JOIN(Interval, NAME);

/* The least value in an interval of the cubic polynomial through a height and its rates at both ends. */
static T JOIN(least_height, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, const int l, const int64_t j, const T length) {
  const T h0 = LANE_OF(w->left[j], l), h1 = LANE_OF(w->right[j], l);
  const T r0 = length * LANE_OF(w->left[EVENTS(m) + j], l), r1 = length * LANE_OF(w->right[EVENTS(m) + j], l);
  return JOIN(cubic, NAME)(h0, r0, h1, r1, JOIN(least_at, NAME)(h0, r0, h1, r1));
}

/* True if a height seems to be below zero within an interval. */
static int JOIN(touches, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, const int l, const T length) {
  int found = 0;
  for (int64_t j = 0; j < EVENTS(m); j++) found |= JOIN(least_height, NAME)(m, w, l, j, length) < 0;
  return found;
}

/* True if no height has a root in an interval, as far as the heights and rates at both ends and in the middle tell: the cubic
   polynomials through the ends stay above zero by more than they are off in the middle. */
static int JOIN(is_clear, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, const int l, const T length) {
  const int64_t events = EVENTS(m);
  for (int64_t j = 0; j < events; j++) {
    const T h0 = LANE_OF(w->left[j], l), h1 = LANE_OF(w->right[j], l), middle = LANE_OF(w->inside[j], l);
    const T r0 = length * LANE_OF(w->left[events + j], l), r1 = length * LANE_OF(w->right[events + j], l);
    if (isinf(h1) && h1 > 0) continue; /* an event that is disabled */
    const T rate = length * LANE_OF(w->inside[events + j], l) - (T)1.5 * (h1 - h0) + (T)0.25 * (r0 + r1);
    const T off = M(fabs)(middle - JOIN(cubic, NAME)(h0, r0, h1, r1, (T)0.5)) + (T)0.25 * M(fabs)(rate);
    if (!(middle > 0 && JOIN(least_height, NAME)(m, w, l, j, length) > 2 * off)) return 0;
  }
  return 1;
}

/* The memory of how near the quantities came to their values in an interval without a root, `from` one time on, before they
   turned back. */
static void JOIN(note_nearest, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, const int l, V *y, const T from, const T length) {
  const Memory *k = &m->memory;
  for (int64_t j = 0; j < EVENTS(m); j++) {
    const T h0 = LANE_OF(w->left[j], l), h1 = LANE_OF(w->right[j], l);
    const T r0 = length * LANE_OF(w->left[EVENTS(m) + j], l), r1 = length * LANE_OF(w->right[EVENTS(m) + j], l);
    const int touching = LANE_OF(y[k->touching + j], l) != 0;
    const T since = from - LANE_OF(y[k->since], l);
    if (!(r0 < 0 && r1 >= 0 && isfinite(h1))) continue;
    if (touching && since <= 0) continue; /* it starts on its value: the rate of one at rest is rounding */
    /* The quartic polynomial, which has the height in the middle, too. */
    const T x = JOIN(least_at, NAME)(h0, r0, h1, r1), off = LANE_OF(w->inside[j], l) - JOIN(cubic, NAME)(h0, r0, h1, r1, (T)0.5);
    const T least = JOIN(cubic, NAME)(h0, r0, h1, r1, x) + 16 * off * x * x * (1 - x) * (1 - x);
    const T distance = least * (touching ? since + x * length : 1);
    if (distance < LANE_OF(y[k->nearest + j], l)) LANE_OF(y[k->nearest + j], l) = distance;
  }
}

/* Halves the intervals of the lanes that are looking, until the first root is in a part of the step where the cubic polynomial
   says where, or there is none. A quantity that crosses its value and returns within a step is found so, too; one that only
   comes near is noted in the memory in `y`. */
static void JOIN(bracket, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, JOIN(Interval, NAME) *at, const int64_t *instances,
                                V *y, const V *f, const V begin, const V h) {
  const int64_t numbers = 2 * EVENTS(m);
  memcpy(w->left, w->begin, (size_t)numbers * sizeof(V)), memcpy(w->right, w->end, (size_t)numbers * sizeof(V));
  for (;;) {
    V middle = {0};
    int some = 0;
    EACH_LANE some |= at[l].looking, LANE_OF(middle, l) = (T)0.5 * (at[l].from + at[l].to);
    if (!some) return;
    JOIN(heights_inside, NAME)(m, w, instances, y, f, begin, h, middle);
    EACH_LANE {
      JOIN(Interval, NAME) *i = &at[l];
      int64_t none = 0;
      if (!i->looking) continue;
      const T way = i->to - i->from, length = way * LANE_OF(h, l);
      const int ends_below = JOIN(lowest, NAME)(m, w->right, l, &i->which) < 0;
      const int finest = way * (JOIN(touches, NAME)(m, w, l, length) && !ends_below ? FINEST_AT_A_TOUCH : FINEST) <= 1;
      const int below = JOIN(lowest, NAME)(m, w->inside, l, &none) < 0;
      if (ends_below && (finest || (way * 8 <= 1 && !below))) {
        i->looking = 0, i->found = 1;
        continue;
      }
      if (below || ends_below || !(finest || JOIN(is_clear, NAME)(m, w, l, length))) {
        for (int64_t k = 0; k < numbers; k++) LANE_OF(w->right[k], l) = LANE_OF(w->inside[k], l);
        i->to = LANE_OF(middle, l);
        continue;
      }
      JOIN(note_nearest, NAME)(m, w, l, y, LANE_OF(begin, l) + i->from * LANE_OF(h, l), length);
      if (i->to < 1) {
        for (int64_t k = 0; k < numbers; k++) LANE_OF(w->left[k], l) = LANE_OF(w->right[k], l), LANE_OF(w->right[k], l) = LANE_OF(w->end[k], l);
        i->from = i->to, i->to = 1;
      } else {
        i->looking = 0;
      }
    }
  }
}

/* Looks in the lanes that are `wanted` for the first time within a step at which a height is zero; where there is one, the
   lane does not keep the step, but is to take it again to that time. */
static void JOIN(look_for_events, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, JOIN(Lane, NAME) *lanes,
                                        const int64_t *instances, const int *wanted, V *y, const V *f, const V begin,
                                        const V h) {
  const int64_t events = EVENTS(m);
  const T near = sizeof(T) == 8 ? 1e-9 : 1e-5; /* of the step; that which is taken again comes nearer */
  JOIN(Interval, NAME) at[LANES];
  T theta[LANES];
  int any = 0, left[LANES];
  EACH_LANE {
    const JOIN(Interval, NAME) whole = {0, 1, wanted[l], 0, 0};
    at[l] = whole;
  }
  JOIN(bracket, NAME)(m, w, at, instances, y, f, begin, h);
  EACH_LANE {
    any |= left[l] = at[l].found, theta[l] = 0;
    if (!left[l]) continue;
    const int64_t j = at[l].which;
    const T way = at[l].to - at[l].from, length = way * LANE_OF(h, l);
    theta[l] = at[l].from + way * JOIN(root_of_cubic, NAME)(LANE_OF(w->left[j], l), length * LANE_OF(w->left[events + j], l),
                                                            LANE_OF(w->right[j], l), length * LANE_OF(w->right[events + j], l));
  }
  if (!any) return;
  for (int tries = 0; tries < 60; tries++) { /* Newton's method within the interval, which is halved where that leads out */
    V here = {0};
    int some = 0;
    EACH_LANE some |= left[l], LANE_OF(here, l) = theta[l];
    if (!some) break;
    JOIN(heights_inside, NAME)(m, w, instances, y, f, begin, h, here);
    EACH_LANE {
      JOIN(Interval, NAME) *i = &at[l];
      if (!left[l]) continue;
      const T height = JOIN(lowest, NAME)(m, w->inside, l, &i->which);
      const T change = -height / (LANE_OF(h, l) * LANE_OF(w->inside[events + i->which], l));
      if (height < 0) i->to = theta[l];
      else i->from = theta[l];
      const int inside = theta[l] + change > i->from && theta[l] + change < i->to;
      theta[l] = inside ? theta[l] + change : (T)0.5 * (i->from + i->to);
      left[l] = !(inside && M(fabs)(change) < near) && i->to - i->from > near;
    }
  }
  EACH_LANE {
    JOIN(Lane, NAME) *a = &lanes[l];
    if (!at[l].found) continue;
    a->aimed = at[l].which, a->tries = 0, a->latest = LANE_OF(begin, l) + LANE_OF(h, l);
    a->tnext = LANE_OF(begin, l) + theta[l] * LANE_OF(h, l);
    if (++a->counts[STEPS] >= m->max_steps) a->active = 0, a->counts[RESULT] = STEPS_USED_UP;
  }
}

/* Decides on a step that was taken again to a root: by one step of Newton's method it ends nearer to that, and as near as
   rounding lets it, it is accepted. Returns 1 then, and the event is due. So near that the square of the way counts for
   nothing, the rest of the way goes along the slope at the end, where that is known. */
static int JOIN(reaches_event, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, JOIN(Lane, NAME) *a, const int l,
                                     const V *f, V *next) {
  const int64_t events = EVENTS(m), n = MOVING(m);
  const T rounding = sizeof(T) == 8 ? 4.4e-16 : 2.4e-7, h = a->tnext - a->tprev;
  const T height = LANE_OF(w->end[a->aimed], l), rate = LANE_OF(w->end[events + a->aimed], l);
  const T largest = M(fabs)(a->tnext) > h ? M(fabs)(a->tnext) : h, change = -height / rate;
  if (++a->counts[STEPS] >= m->max_steps) {
    a->active = 0, a->counts[RESULT] = STEPS_USED_UP;
    return 0;
  }
  if (a->tries++ < 6 && M(fabs)(change) > rounding * largest && rate != 0 && isfinite(change)) {
    const T end = a->tnext + change;
    a->tnext = end < a->tprev ? a->tprev : end > a->latest ? a->latest : end;
    if (!m->method.fsal || M(fabs)(change) > M(sqrt)(rounding) / 4 * h) return 0;
    for (int64_t k = 0; k < n; k++) LANE_OF(next[k], l) += change * LANE_OF(f[(m->method.stages - 1) * n + k], l);
    LANE_OF(next[m->memory.time], l) = a->tnext;
  }
  LANE_OF(next[m->memory.due], l) = (T)(events + a->aimed);
  if (m->adaptive) a->resumed = (a->latest > a->proposed ? a->latest : a->proposed) - a->tprev;
  a->aimed = NOTHING, a->due = 1, a->tprev = a->tnext;
  a->counts[ACCEPTED]++;
  return 1;
}

/* Lets the events happen that are due. Returns 1 if there were any. */
static int JOIN(let_happen, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, JOIN(Lane, NAME) *lanes,
                                  const int64_t *instances, V *y, V *unknown) {
  const Memory *k = &m->memory;
  const int64_t n = STATES(m), batch = m->call.batch;
  V t = {0};
  int any = 0;
  EACH_LANE any |= lanes[l].due && lanes[l].active, LANE_OF(t, l) = lanes[l].tprev;
  if (!any) return 0;
  SLOPE(m, EVENT, w->at, &t, y, instances, w->result);
  COUNT(m, EVENT, 1);
  EACH_LANE {
    JOIN(Lane, NAME) *a = &lanes[l];
    if (!a->due || !a->active) continue;
    a->counts[ACCEPTED]++;
    if (m->recorded) JOIN(record, NAME)(m, a, l, instances[l], y, a->tprev, a->tprev, LANE_OF(y[k->due], l));
    const int64_t row = (int64_t)LANE_OF(y[k->logged], l);
    for (int64_t i = 0; i < n; i++) LANE_OF(y[i], l) = LANE_OF(w->result[i], l);
    if (LANE_OF(y[k->logged], l) > row && row < k->room) {
      T *mine = JOIN(row, NAME)(&m->log, batch, instances[l]) + row * ENTRY(m);
      for (int64_t i = 0; i < ENTRY(m); i++) mine[i] = LANE_OF(w->result[n + i], l);
    }
    a->due = LANE_OF(y[k->due], l) != NOTHING, a->fresh = 1, LANE_OF(*unknown, l) = 1;
    JOIN(plan, NAME)(a, m, instances[l], a->resumed);
    a->active = LANE_OF(y[k->halted], l) == 0 && (a->due || a->tprev < a->t1);
  }
  return 1;
}

/* The heights at the start of a step in the lanes that do not have them from the end of the step before. */
static void JOIN(watch_start, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, JOIN(Lane, NAME) *lanes,
                                    const int64_t *instances, const V *y, const V begin) {
  int any = 0;
  EACH_LANE any |= lanes[l].fresh && lanes[l].active;
  if (!any) return;
  SLOPE(m, GUARD, w->at, &begin, y, instances, w->inside);
  EACH_LANE {
    if (!lanes[l].fresh) continue;
    lanes[l].fresh = 0;
    for (int64_t j = 0; j < 2 * EVENTS(m); j++) LANE_OF(w->begin[j], l) = LANE_OF(w->inside[j], l);
  }
}
