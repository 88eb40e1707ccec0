/* Steps of implicit methods, in the time loop (`erk_loop.h`) and in the sweeps over its steps (`erk_sweeps.h`).

   The programs work on `[y, h, U, F]`: the state, the length of the step, the unknowns at its nodes, and the factored matrices
   of Newton's method (`collocation_in_loop.py`). The motion's own program is an iteration; `guess` and those beside it are
   the rest. The slopes that a step gives are those at the nodes, and two more for the error and the dense output. */

/* What steps work on: the slots of the programs; `[y, h, U, F]` with room for `U` once more, and its tangents or cotangents; and
   room for what a program gives, and for its tangents. */
typedef struct {
  V *const *at;
  V *work, *dwork, *found, *dfound;
} JOIN(Implicit, NAME);

/* How many numbers these are. */
#define SIZE_OF_WORK(m) (STATES(m) + 1 + UNKNOWNS(m) + FACTORS(m))
#define ROOM_OF_WORK(m) (IMPLICIT(m) ? SIZE_OF_WORK(m) + UNKNOWNS(m) : 0)
#define ROOM_OF_FOUND(m) (IMPLICIT(m) ? UNKNOWNS(m) + UNKNOWN_SIZES + STAGES(m) * MOVING(m) + STATES(m) : 0)

static inline int JOIN(all_are, NAME)(const V done) {
  EACH_LANE if (LANE_OF(done, l) == 0) return 0;
  return 1;
}

/* The unknowns of a step from `t` to `end` that starts at `y`, its slopes and its end. Returns 1 in lanes in which Newton's
   method has failed. A step without length stays where it is. */
static V JOIN(implicit_step, NAME)(const Motion *m, const JOIN(Implicit, NAME) *g, const V t, const V end, const V *y, V *f,
                                   V *next, const int64_t *instances) {
  const int64_t n = STATES(m), u = UNKNOWNS(m), slopes = STAGES(m) * MOVING(m);
  const V h = end - t, rests = JOIN(eq, NAME)(h, ALL(0));
  V *const U = g->work + n + 1, *const found = g->found;
  V done = rests, failed = {0}, before = ALL(1);
  memcpy(g->work, y, (size_t)n * sizeof(V));
  g->work[n] = JOIN(select, NAME)(rests, ALL(1), h);
  SLOPE(m, GUESS, g->at, &t, g->work, instances, U);
  SLOPE(m, LINEARIZE, g->at, &t, g->work, instances, U + u);
  for (int k = 0; k < MOST_ITERATIONS && !JOIN(all_are, NAME)(done); k++) {
    SLOPE(m, RATE, g->at, &t, g->work, instances, found);
    COUNT(m, RATE, 1);
    /* The rest of a geometric series with the ratio of two changes (Hairer, Wanner, section IV.8). */
    const V size = found[u], ratio = k ? size / before : ALL(0.5);
    const V rest = size * ratio / JOIN(max, NAME)(ALL(1) - ratio, ALL(1e-3));
    const V stalls = JOIN(and, NAME)(JOIN(lt, NAME)(ALL(0.5), ratio), JOIN(le, NAME)(size, found[u + 2]));
    const V diverges = JOIN(or, NAME)(JOIN(lt, NAME)(ALL(2), ratio), JOIN(not, NAME)(JOIN(is_finite, NAME)(size)));
    const V converges = JOIN(or, NAME)(JOIN(le, NAME)(rest, found[u + 1]), stalls);
    for (int64_t i = 0; i < u; i++) U[i] = JOIN(select, NAME)(done, U[i], found[i]);
    failed = JOIN(or, NAME)(failed, JOIN(and, NAME)(JOIN(not, NAME)(done), JOIN(and, NAME)(diverges, JOIN(not, NAME)(converges))));
    done = JOIN(or, NAME)(done, JOIN(or, NAME)(converges, diverges));
    before = size;
  }
  SLOPE(m, REACH, g->at, &t, g->work, instances, found);
  COUNT(m, GUESS, 1), COUNT(m, LINEARIZE, 1), COUNT(m, REACH, 1);
  for (int64_t k = 0; k < slopes; k++) f[k] = JOIN(select, NAME)(rests, ALL(0), found[k]);
  for (int64_t k = 0; k < n; k++) next[k] = JOIN(select, NAME)(rests, y[k], found[slopes + k]);
  return JOIN(or, NAME)(failed, JOIN(not, NAME)(done));
}

/* How much tangents or cotangents of unknowns change, relative to their size. As for the unknowns themselves, coordinates count
   beside speeds times `h`, the length of the step, or for cotangents its inverse, and multipliers do not count: what is small
   beside the rest of the motion may be rounding, which never settles. */
static V JOIN(relative_change, NAME)(const Motion *m, const V h, const V *x, const V *next) {
  V change[UNKNOWN_KINDS], size[UNKNOWN_KINDS];
  for (int64_t kind = 0, k = 0; kind < UNKNOWN_KINDS; kind++) {
    change[kind] = size[kind] = ALL(0);
    for (; k < m->unknowns.ends[kind]; k++) {
      change[kind] = JOIN(max, NAME)(change[kind], JOIN(abs, NAME)(next[k] - x[k]));
      size[kind] = JOIN(max, NAME)(size[kind], JOIN(abs, NAME)(next[k]));
    }
  }
  const V unit = JOIN(abs, NAME)(h), extent = size[OF_Q] + unit * size[OF_V];
  const V motion = JOIN(max, NAME)(change[OF_Q], unit * change[OF_V]);
  const V moves = JOIN(select, NAME)(JOIN(eq, NAME)(motion, ALL(0)), ALL(0), motion / extent);
  const V others = JOIN(select, NAME)(JOIN(eq, NAME)(change[OF_Z], ALL(0)), ALL(0), change[OF_Z] / size[OF_Z]);
  return JOIN(max, NAME)(moves, others);
}

/* True in lanes in which the iteration of a derivative has ended: what is left of the changes, a geometric series, is
   rounding, or they do not decrease any more. A ratio of two changes that is very small may be chance. */
static V JOIN(is_settled, NAME)(const V size, const V before) {
  const V rounding = ALL(sizeof(T) == 8 ? 1e-15 : 1e-6), small = ALL(sizeof(T) == 8 ? 1e-9 : 1e-3);
  const V ratio = size / before, rest = size * JOIN(max, NAME)(ratio, ALL(1e-4)) / JOIN(max, NAME)(ALL(1) - ratio, ALL(1e-3));
  const V stalls = JOIN(and, NAME)(JOIN(le, NAME)(before, size), JOIN(lt, NAME)(size, small));
  return JOIN(or, NAME)(JOIN(le, NAME)(JOIN(select, NAME)(JOIN(eq, NAME)(size, ALL(0)), ALL(0), rest), rounding), stalls);
}

/* The tangents of the slopes, `df (stages, directions, moving)`, and of the end of a step whose unknowns are known, from those of
   its start, `dy`, and of the ends, `dt0` and `dh`. */
static void JOIN(tangent_implicit, NAME)(const Motion *m, const JOIN(Implicit, NAME) *g, const V t, const V h, V *dy,
                                         const V *dt0, const V *dh, V *df, const int64_t *instances) {
  const int64_t n = STATES(m), u = UNKNOWNS(m), size = SIZE_OF_WORK(m), directions = DIRECTIONS(m);
  const int64_t moving = MOVING(m), slopes = STAGES(m) * moving, results = u + UNKNOWN_SIZES, ends = slopes + n;
  const V rests = JOIN(eq, NAME)(h, ALL(0));
  V done = rests, before = ALL(INFINITY);
  memset(g->dwork, 0, (size_t)(directions * size) * sizeof(V));
  for (int64_t d = 0; d < directions; d++) {
    memcpy(g->dwork + d * size, dy + d * n, (size_t)n * sizeof(V));
    g->dwork[d * size + n] = dh[d];
  }
  for (int k = 0; k < MOST_CORRECTIONS && !JOIN(all_are, NAME)(done); k++) {
    V change = {0};
    TANGENT(m, DERIVATIVE, g->at, &t, g->work, dt0, g->dwork, instances, g->found, g->dfound);
    for (int64_t d = 0; d < directions; d++) {
      V *const dU = g->dwork + d * size + n + 1, *const next = g->dfound + d * results;
      change = JOIN(max, NAME)(change, JOIN(relative_change, NAME)(m, g->work[n], dU, next));
      for (int64_t i = 0; i < u; i++) dU[i] = JOIN(select, NAME)(done, dU[i], next[i]);
    }
    done = JOIN(or, NAME)(done, JOIN(is_settled, NAME)(change, before)), before = change;
  }
  TANGENT(m, REACH_DERIVATIVE, g->at, &t, g->work, dt0, g->dwork, instances, g->found, g->dfound);
  for (int64_t d = 0; d < directions; d++) {
    const V *const mine = g->dfound + d * ends;
    for (int64_t k = 0; k < slopes; k++)
      df[(k / moving * directions + d) * moving + k % moving] = JOIN(select, NAME)(rests, ALL(0), mine[k]);
    for (int64_t k = 0; k < n; k++) dy[d * n + k] = JOIN(select, NAME)(rests, dy[d * n + k], mine[slopes + k]);
  }
}

/* Pulls the cotangents of the slopes of a step, `fbar`, and of its end, `nextbar`, back to its start, added to `ybar`, to its
   ends, `startbar` and `hbar`, and to parameters. The unknowns are those of `implicit_step`. */
static void JOIN(pull_implicit, NAME)(const Motion *m, const JOIN(Implicit, NAME) *g, const V t, const V h, const V *fbar,
                                      const V *nextbar, V *ybar, V *startbar, V *hbar, V *bars, const int64_t *instances) {
  const int64_t n = STATES(m), u = UNKNOWNS(m), slopes = STAGES(m) * MOVING(m);
  const V rests = JOIN(eq, NAME)(h, ALL(0)), on = JOIN(not, NAME)(rests);
  V *const wanted = g->dfound, *const adjoint = g->work + SIZE_OF_WORK(m);
  V done = rests, before = ALL(INFINITY);
  memcpy(g->found, fbar, (size_t)slopes * sizeof(V));
  memcpy(g->found + slopes, nextbar, (size_t)n * sizeof(V));
  for (int last = 0; last < 2; last++) {
    V tbar = {0};
    if (last) PULL(m, DERIVATIVE, g->at, &t, g->work, g->found, instances, on, g->dwork, &tbar, bars);
    else PULL(m, REACH_DERIVATIVE, g->at, &t, g->work, g->found, instances, on, g->dwork, &tbar, bars);
    *startbar += JOIN(select, NAME)(on, tbar, ALL(0)), *hbar += JOIN(select, NAME)(on, g->dwork[n], ALL(0));
    for (int64_t k = 0; k < n; k++) ybar[k] += JOIN(select, NAME)(on, g->dwork[k], ALL(0));
    if (last) break;
    memcpy(wanted, g->dwork + n + 1, (size_t)u * sizeof(V)), memcpy(adjoint, wanted, (size_t)u * sizeof(V));
    for (int k = 0; k < MOST_CORRECTIONS && !JOIN(all_are, NAME)(done); k++) {
      SLOPE(m, ADJOINT, g->at, &t, g->work, instances, g->found);
      for (int64_t i = 0; i < u; i++) g->found[i] += wanted[i];
      const V change = JOIN(relative_change, NAME)(m, 1 / g->work[n], adjoint, g->found);
      for (int64_t i = 0; i < u; i++) adjoint[i] = JOIN(select, NAME)(done, adjoint[i], g->found[i]);
      done = JOIN(or, NAME)(done, JOIN(is_settled, NAME)(change, before)), before = change;
    }
    memcpy(g->found, adjoint, (size_t)u * sizeof(V)), memset(g->found + u, 0, UNKNOWN_SIZES * sizeof(V));
  }
}
