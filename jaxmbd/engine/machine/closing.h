/* States put back onto the constraints after each step, in the time loop (`erk_loop.h`) and in the sweeps (`erk_sweeps.h`).

   A program is one step of Newton's method for the coordinates, and gives the speeds for those: the first components of the
   state, and the size of the change. By the implicit function theorem the derivative of one step at the closed coordinates is
   that of all of them (`newton_closure.py`). */

/* What it works on: the slots of the programs; a state, what the program gives, and tangents or cotangents of that. */
typedef struct {
  V *const *at;
  V *from, *result, *dresult;
} JOIN(Closing, NAME);

/* Puts the state `y` at the end `t` of a step back onto the constraints, except in lanes whose step has no length, `rests`.
   `from` becomes the state at which the derivative is taken: the closed coordinates with the speeds before. Returns 1 in lanes in
   which Newton's method fails. */
static V JOIN(close, NAME)(const Motion *m, const JOIN(Closing, NAME) *c, const V *t, V *y, const V rests,
                           const int64_t *instances) {
  if (!CLOSES(m)) return ALL(0);
  const int64_t count = RESULTS(m, CLOSING) - 1;
  /* The root of the unit of rounding: the method converges quadratically. */
  const V tolerance = ALL(sizeof(T) == 8 ? (T)1.4901161193847656e-8 : (T)3.4526698300124393e-4);
  V done = rests, failed = {0};
  memcpy(c->from, y, (size_t)STATES(m) * sizeof(V));
  for (int k = 0; k < MOST_CLOSINGS && !JOIN(all_are, NAME)(done); k++) {
    SLOPE(m, CLOSING, c->at, t, c->from, instances, c->result);
    COUNT(m, CLOSING, 1);
    const V size = c->result[count], diverges = JOIN(not, NAME)(JOIN(is_finite, NAME)(size));
    failed = JOIN(or, NAME)(failed, JOIN(and, NAME)(JOIN(not, NAME)(done), diverges));
    for (int64_t i = 0; i < count; i++) {
      y[i] = JOIN(select, NAME)(done, y[i], c->result[i]);
      if (i < m->coordinates) c->from[i] = y[i];
    }
    done = JOIN(or, NAME)(done, JOIN(or, NAME)(diverges, JOIN(le, NAME)(size, tolerance)));
  }
  return JOIN(or, NAME)(failed, JOIN(not, NAME)(done));
}

/* The tangents `dy` of a state that has been put back at `t`, from those before and those of the time, `dt`. */
static void JOIN(tangent_closing, NAME)(const Motion *m, const JOIN(Closing, NAME) *c, const V *t, const V *dt, V *dy,
                                        const V rests, const int64_t *instances) {
  if (!CLOSES(m)) return;
  const int64_t n = STATES(m), results = RESULTS(m, CLOSING);
  TANGENT(m, CLOSING_DERIVATIVE, c->at, t, c->from, dt, dy, instances, c->result, c->dresult);
  for (int64_t d = 0; d < DIRECTIONS(m); d++)
    for (int64_t i = 0; i < results - 1; i++)
      dy[d * n + i] = JOIN(select, NAME)(rests, dy[d * n + i], c->dresult[d * results + i]);
}

/* The cotangents `ybar` of a state before it is put back at `t`, from those after it; those of the time and of parameters are
   added to `tbar` and `bars`. `bar`: room for those of a state. */
static void JOIN(pull_closing, NAME)(const Motion *m, const JOIN(Closing, NAME) *c, const V *t, V *ybar, V *bar, V *tbar,
                                     V *bars, const V rests, const int64_t *instances) {
  if (!CLOSES(m)) return;
  const int64_t n = STATES(m), count = RESULTS(m, CLOSING) - 1;
  const V moves = JOIN(not, NAME)(rests);
  V of_time = {0};
  for (int64_t i = 0; i < count; i++) c->dresult[i] = JOIN(select, NAME)(rests, ALL(0), ybar[i]);
  c->dresult[count] = ALL(0);
  PULL(m, CLOSING_DERIVATIVE, c->at, t, c->from, c->dresult, instances, moves, bar, &of_time, bars);
  *tbar += JOIN(select, NAME)(moves, of_time, ALL(0));
  for (int64_t i = 0; i < n; i++)
    ybar[i] = JOIN(select, NAME)(rests, ybar[i], i < count ? bar[i] : ybar[i] + bar[i]);
}
