/* The motion of one mechanism in time: its state, and steps of an explicit Runge-Kutta method of constant length.

   It stands behind `model.c`, which has the sizes, the numbers and the functions of the mechanism. Nothing is allocated. */

#include <float.h>
#include <string.h>

/* Positive multiples of rounding: times that are as near to one another are one, and evaluations stay so far away from times
   at which forces switch (`switching.py` has the same numbers). */
#define GAP 64.0
#define NUDGE 2.0
#define MOST_CLOSINGS 20
#define CLOSED 1.4901161193847656e-8 /* the root of the unit of rounding: the method converges quadratically */

#ifndef Motion /* which a header has for C programs that use the mechanism without FMI */
/* A state with all that it depends on. Arrays have room for one number more, since C has none without numbers.
   `memory`: the selected constraint rows, which change between steps; `switches`: the times at which forces switch, in
   order; `low`, `high`: forces are evaluated at times between these; `is_moved`: states or parameters were set since the
   joints were closed. */
typedef struct {
  double t, x[STATES + 1], memory[MEMORY + 1], u[INPUTS + 1], p[PARAMETERS + 1];
  double switches[SWITCHES + 1], low, high;
  int is_moved;
} Motion;
#endif

/* Room for the stages of a step. */
typedef struct {
  double slopes[STAGES][STATES + 1], at[STATES + 1], next[STATES + 1];
} Stages;

/* Begins at the start values of the model. */
static void motion_start(Motion *m) {
  memset(m, 0, sizeof *m);
  m->t = start_time;
  memcpy(m->x, start_states, sizeof m->x);
  memcpy(m->memory, start_memory, sizeof m->memory);
  memcpy(m->p, start_parameters, sizeof m->p);
  m->low = -INFINITY, m->high = INFINITY;
  m->is_moved = 1;
}

static double rounding(const double t) { return DBL_EPSILON * fabs(t); }

/* The time at which forces are evaluated for a time: on this side of switching times. */
static double evaluation_time(const Motion *m, const double t) { return fmin(fmax(t, m->low), m->high); }

/* The first arguments of the functions of the mechanism, at the present time. */
#define AT_NOW(m) (const double[]){evaluation_time(m, (m)->t)}, (m)->x, (m)->memory, (m)->u, (m)->p

/* The next switching time after `t`; infinite if there is none. */
static double next_switch(const Motion *m, const double t) {
  int first = 0, end = SWITCHES;
  while (first < end) {
    const int middle = (first + end) / 2;
    if (m->switches[middle] <= t + GAP * rounding(t)) first = middle + 1;
    else end = middle;
  }
  return first < SWITCHES ? m->switches[first] : INFINITY;
}

/* Finds the switching times between which the motion is: what is at the present time counts as passed. */
static void motion_locate(Motion *m) {
  m->low = -INFINITY, m->high = INFINITY;
  const double next = next_switch(m, m->t);
  if (next < INFINITY) m->high = next - NUDGE * rounding(next);
  for (int k = SWITCHES - 1; k >= 0; k--)
    if (m->switches[k] < next) {
      m->low = m->switches[k] + NUDGE * rounding(m->switches[k]);
      break;
    }
}

/* Finds the switching times, which may be parameters, and sorts them (Shell, Comm. ACM 2 (1959)). */
static void find_switches(Motion *m) {
  switching_times(m->p, m->switches);
  for (int step = SWITCHES / 2; step > 0; step /= 2)
    for (int i = step; i < SWITCHES; i++)
      for (int k = i - step; k >= 0 && m->switches[k] > m->switches[k + step]; k -= step) {
        const double larger = m->switches[k];
        m->switches[k] = m->switches[k + step], m->switches[k + step] = larger;
      }
}

static int all_finite(const double *x, const int n) {
  for (int k = 0; k < n; k++)
    if (!isfinite(x[k])) return 0;
  return 1;
}

/* The state on the constraints, by Newton's method: the nearest coordinates in the metric of the mass matrix, and the speeds
   that belong to them. Returns 0 if it does not converge. */
static int closed_state(const Motion *m, double *closed) {
#if CLOSES
  double from[STATES + 1], change[1] = {INFINITY};
  const double t[1] = {evaluation_time(m, m->t)};
  memcpy(from, m->x, sizeof from);
  for (int k = 0; k < MOST_CLOSINGS && !(change[0] <= CLOSED); k++) {
    closing_step(t, from, m->memory, m->u, m->p, closed, change);
    if (!isfinite(change[0])) return 0;
    memcpy(from, closed, COORDINATES * sizeof *from);
  }
  return change[0] <= CLOSED;
#else
  memcpy(closed, m->x, STATES * sizeof *closed);
  return 1;
#endif
}

/* Puts the state onto the constraints, after states or parameters were set. Returns 0, and changes no state, if that fails. */
static int motion_close(Motion *m) {
  double closed[STATES + 1];
  find_switches(m);
  motion_locate(m);
  if (!closed_state(m, closed)) return 0;
  memcpy(m->x, closed, STATES * sizeof *closed);
  m->is_moved = 0;
  return 1;
}

/* The state as solutions of jaxmbd report it: with the speeds that satisfy the constraints, where rows are redundant with closed
   joints, and with quaternions of length one. */
static void motion_report(const Motion *m, double *x) {
  const double t[1] = {evaluation_time(m, m->t)};
  double from[STATES + 1];
  if (!MEMORY || !closed_state(m, from)) memcpy(from, m->x, STATES * sizeof *from);
  reported_state(t, from, m->memory, m->u, m->p, x);
}

/* What changes after a step: which rows the equations are solved in. */
static void motion_settle(Motion *m) {
#if MEMORY
  const double t[1] = {evaluation_time(m, m->t)};
  double next[MEMORY + 1];
  next_memory(t, m->x, m->memory, m->u, m->p, next);
  memcpy(m->memory, next, MEMORY * sizeof *next);
#else
  (void)m;
#endif
}

/* One step to a time. Returns 0, and changes nothing, if a number is not finite. */
static int motion_step(Motion *m, Stages *s, const double to) {
  motion_locate(m);
  const double h = to - m->t;
  for (int i = 0; i < STAGES; i++) {
    memcpy(s->at, m->x, sizeof s->at);
    for (int k = 0; k < i; k++)
      if (method_a[i][k] != 0)
        for (int j = 0; j < STATES; j++) s->at[j] += h * method_a[i][k] * s->slopes[k][j];
    const double t[1] = {evaluation_time(m, m->t + h * method_c[i])};
    rates(t, s->at, m->memory, m->u, m->p, s->slopes[i]);
  }
  memcpy(s->next, m->x, sizeof s->next);
  for (int i = 0; i < STAGES; i++)
    if (method_b[i] != 0)
      for (int j = 0; j < STATES; j++) s->next[j] += h * method_b[i] * s->slopes[i][j];
  if (!all_finite(s->next, STATES)) return 0;
  memcpy(m->x, s->next, sizeof m->x);
  m->t = to;
  motion_settle(m);
  return 1;
}

/* Steps of equal length, STEP at most, to a time, divided where forces switch. Returns 0 if one fails: the state is then that
   before it. */
static int motion_advance(Motion *m, Stages *s, const double end) {
  const double begin = m->t, count = fmax(1.0, ceil((end - begin) / STEP * (1 - GAP * DBL_EPSILON)));
  for (double k = 1; k <= count; k++) {
    const double to = k < count ? begin + k * ((end - begin) / count) : end;
    for (;;) {
      const double next = next_switch(m, m->t);
      const int divides = next < to - GAP * rounding(to);
      if (!motion_step(m, s, divides ? next : to)) return 0;
      if (!divides) break;
    }
  }
  motion_locate(m);
  return 1;
}
