/* Events in the time loop (`erk_loop.h`) and in the sweeps over its steps (`erk_sweeps.h`).

   The state holds a memory beside coordinates and speeds (`Memory` in `motion.h`): constant within a step, changed by events
   alone. The program of the guards gives for each event its height, which is positive until it happens, and the rate of that.
   A step in which a height becomes negative is taken again to the root. An event is an entry of zero length in the record of
   steps: the program of what it does gives the state after it and what the log is to hold. Which event that is, the component
   `due` of the memory says (`motion.h`).

   The end of a step that is a root moves with the parameters. The program of an event therefore follows the motion from there
   to the root, a path of length zero, and the end of the step itself is a constant. */

/* --- in a run --------------------------------------------------------------------------------------------- */

/* What a run with events works on: the slots of the programs; heights and their rates at the start and the end of a step, and
   within it; a state within a step; and the result of an event. */
typedef struct {
  V *guard, *event, *begin, *end, *inside, *state, *result;
} JOIN(Watch, NAME);

/* The lowest of the heights in a lane, and in `which` the event that has it. */
static T JOIN(lowest, NAME)(const Motion *m, const V *heights, const int l, int64_t *which) {
  T least = INFINITY;
  for (int64_t j = 0; j < EVENTS(m); j++)
    if (LANE_OF(heights[j], l) < least) least = LANE_OF(heights[j], l), *which = j;
  return least;
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
  JOIN(slope, NAME)(m->guard, w->guard, &t, w->state, instances, w->inside);
}

/* The cubic polynomial through heights `h0`, `h1` and rates `r0`, `r1` at the ends of an interval of length 1. */
static inline T JOIN(cubic, NAME)(const T h0, const T r0, const T h1, const T r1, const T x) {
  const T rise = h1 - h0;
  return h0 + x * (r0 + x * (3 * rise - 2 * r0 - r1 + x * (r0 + r1 - 2 * rise)));
}

/* The place of its minimum; returns 0 if there is none, or if it is higher than half the lower end: not worth a look. */
static int JOIN(dips, NAME)(const T h0, const T r0, const T h1, const T r1, T *place) {
  if (!(r0 < 0 && r1 > 0 && h0 > 0 && h1 > 0)) return 0;
  const T rise = h1 - h0, c = 3 * rise - 2 * r0 - r1, root = c * c - 3 * (r0 + r1 - 2 * rise) * r0;
  if (!(root >= 0)) return 0;
  const T x = *place = -r0 / (c + M(sqrt)(root));
  return x > 0 && x < 1 && JOIN(cubic, NAME)(h0, r0, h1, r1, x) < (T)0.5 * (h0 < h1 ? h0 : h1);
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

/* Looks in the lanes that are `wanted` for the first time within a step at which a height is zero; where there is one, the
   lane does not keep the step, but is to take it again to that time. */
static void JOIN(look_for_events, NAME)(const Motion *m, const JOIN(Watch, NAME) *w, JOIN(Lane, NAME) *lanes,
                                        const int64_t *instances, const int *wanted, const V *y, const V *f, const V begin,
                                        const V h) {
  const int64_t events = EVENTS(m);
  const T near = sizeof(T) == 8 ? 1e-9 : 1e-5; /* the step that is taken again comes nearer */
  int found[LANES], any = 0;
  int64_t which[LANES];
  T low[LANES], high[LANES], at[LANES];
  V theta = {0};
  EACH_LANE {
    low[l] = 0, high[l] = 1, which[l] = 0;
    any |= found[l] = wanted[l] && JOIN(lowest, NAME)(m, w->end, l, &which[l]) < 0;
    if (!found[l]) continue;
    const int64_t j = which[l];
    const T step = LANE_OF(h, l), rates[2] = {LANE_OF(w->begin[events + j], l), LANE_OF(w->end[events + j], l)};
    at[l] = JOIN(root_of_cubic, NAME)(LANE_OF(w->begin[j], l), step * rates[0], LANE_OF(w->end[j], l), step * rates[1]);
  }
  for (int64_t j = 0; j < events; j++) { /* quantities that cross their value and return within the step */
    T from[LANES], to[LANES], ends[LANES][4];
    EACH_LANE {
      from[l] = 0, to[l] = 1;
      ends[l][0] = LANE_OF(w->begin[j], l), ends[l][1] = LANE_OF(w->begin[events + j], l);
      ends[l][2] = LANE_OF(w->end[j], l), ends[l][3] = LANE_OF(w->end[events + j], l);
    }
    for (int tries = 0; tries < 8; tries++) {
      int looking[LANES], some = 0;
      EACH_LANE {
        const T way = to[l] - from[l], step = way * LANE_OF(h, l);
        T place = 0;
        looking[l] = wanted[l] && !(found[l] && high[l] < 1) &&
                     JOIN(dips, NAME)(ends[l][0], step * ends[l][1], ends[l][2], step * ends[l][3], &place);
        some |= looking[l], LANE_OF(theta, l) = looking[l] ? from[l] + place * way : 0;
      }
      if (!some) break;
      JOIN(heights_inside, NAME)(m, w, instances, y, f, begin, h, theta);
      EACH_LANE {
        if (!looking[l]) continue;
        const T height = LANE_OF(w->inside[j], l), rate = LANE_OF(w->inside[events + j], l);
        if (height < 0) any = found[l] = 1, high[l] = LANE_OF(theta, l), at[l] = (T)0.5 * high[l], which[l] = j;
        else if (rate < 0) from[l] = LANE_OF(theta, l), ends[l][0] = height, ends[l][1] = rate;
        else to[l] = LANE_OF(theta, l), ends[l][2] = height, ends[l][3] = rate;
      }
    }
  }
  if (!any) return;
  for (int tries = 0; tries < 60; tries++) { /* Newton's method within the interval, which is halved where that leads out */
    int some = 0;
    EACH_LANE some |= found[l] && !(at[l] < 0), LANE_OF(theta, l) = found[l] ? M(fabs)(at[l]) : 0;
    if (!some) break;
    JOIN(heights_inside, NAME)(m, w, instances, y, f, begin, h, theta);
    EACH_LANE {
      if (!found[l] || at[l] < 0) continue;
      const T here = at[l], height = JOIN(lowest, NAME)(m, w->inside, l, &which[l]);
      const T change = -height / (LANE_OF(h, l) * LANE_OF(w->inside[events + which[l]], l));
      if (height < 0) high[l] = here;
      else low[l] = here;
      const int inside = here + change > low[l] && here + change < high[l];
      at[l] = inside ? here + change : (T)0.5 * (low[l] + high[l]);
      if ((inside && M(fabs)(change) < near) || high[l] - low[l] < near) at[l] = -at[l]; /* found */
    }
  }
  EACH_LANE {
    JOIN(Lane, NAME) *a = &lanes[l];
    if (!found[l]) continue;
    a->aimed = which[l], a->tries = 0, a->latest = LANE_OF(begin, l) + LANE_OF(h, l);
    a->tnext = LANE_OF(begin, l) + M(fabs)(at[l]) * LANE_OF(h, l);
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
  if (m->adaptive) a->resumed = a->latest - a->tprev;
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
  JOIN(slope, NAME)(m->event, w->event, &t, y, instances, w->result);
  JOIN(count, NAME)(&m->event->call, 1);
  EACH_LANE {
    JOIN(Lane, NAME) *a = &lanes[l];
    if (!a->due || !a->active) continue;
    a->counts[ACCEPTED]++;
    if (m->recorded) JOIN(record, NAME)(m, a, l, instances[l], y, a->tprev, a->tprev, LANE_OF(y[k->due], l));
    const int64_t row = (int64_t)LANE_OF(y[k->logged], l);
    for (int64_t i = 0; i < n; i++) LANE_OF(y[i], l) = LANE_OF(w->result[i], l);
    if (LANE_OF(y[k->logged], l) > row && row < k->room) {
      T *mine = JOIN(row, NAME)(&m->log, batch, instances[l]) + row * k->entry;
      for (int64_t i = 0; i < k->entry; i++) mine[i] = LANE_OF(w->result[n + i], l);
    }
    a->due = LANE_OF(y[k->due], l) != NOTHING, a->fresh = 1, LANE_OF(*unknown, l) = 1;
    JOIN(plan, NAME)(a, m, a->resumed);
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
  JOIN(slope, NAME)(m->guard, w->guard, &begin, y, instances, w->inside);
  EACH_LANE {
    if (!lanes[l].fresh) continue;
    lanes[l].fresh = 0;
    for (int64_t j = 0; j < 2 * EVENTS(m); j++) LANE_OF(w->begin[j], l) = LANE_OF(w->inside[j], l);
  }
}
