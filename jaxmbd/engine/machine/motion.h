/* Motions and runs of them, as the time loop (`erk_loop.h`) sees them, on a CPU and on a GPU. */

#include "program.h"

/* An operand or a result: its numbers per instance, and 1 if it has such numbers for each instance of the batch. */
typedef struct {
  void *data;
  int64_t size, varies;
} Array;

/* An explicit Runge-Kutta method: `y1 = y + h sum_j b_j f_j`, the error `h sum_j e_j f_j`, and the dense output
   `y + h sum_j b_j(theta) f_j`, whose weights are polynomials, highest power first. `ssal`: the last stage is the end of
   the step; `fsal`: its slope is the first one of the next step, too. */
typedef struct {
  int64_t stages, degree, fsal, ssal;
  const double *a, *b, *c, *e, *dense;
} Tableau;

enum { STEPS, ACCEPTED, REJECTED, SAVED, RESULT, ENGINE, COUNTS };        /* the counts of a run */
enum { FINISHED, STEPS_USED_UP, STEP_TOO_SMALL };                         /* its result */
enum { ANY, INTERPRETER, STRAIGHT_LINE };                                 /* engines */
enum { RTOL, ATOL, DTMIN, DTMAX, FACTORMIN, FACTORMAX, SAFETY, COEFFICIENT_1, COEFFICIENT_2, COEFFICIENT_3, CONTROLS };

/* The memory of events in the state: how many events there are, and the components of the state that hold the time, the
   event that is due, the number of entries in the log, 1 when an event has ended the motion, and the time of the last event,
   since when a quantity is watched; `room` for entries of so many numbers, `entry`. For each event there is one of the
   components from `touching` on, 1 if its height is divided by that time, and from `nearest` on, the least height from
   which its quantity turned back. `samples`: how often something may be due at a switching time, 0 for never. */
typedef struct {
  int64_t events, room, entry, time, due, logged, halted, since, touching, nearest, samples;
} Memory;

/* What is due: nothing; a look at the guards, at the start of a motion; what happens at a switching time, samples among it;
   event `j` where it is, for the number `j`; or event `j` at a root of its height, which is the end of a step, for `events +
   j`. Where a motion ends because the height of event `j` is no number from there on, `2 events + j`. */
enum { NOTHING = -1, START = -2, SAMPLE = -3 };
/* Parts of a step in which events are looked for, at most; and where a quantity seems to touch its value. */
enum { FINEST = 1 << 10, FINEST_AT_A_TOUCH = 1 << 20 };

/* The unknowns of an implicit method at the nodes of a step: how many numbers, where those of each kind end (coordinates,
   speeds, states of parts, multipliers), and how many numbers the factored matrices have. None for an explicit method. */
enum { OF_Q, OF_V, OF_Z, OF_LAMBDA, UNKNOWN_KINDS };
typedef struct {
  int64_t count, factors, ends[UNKNOWN_KINDS];
} Unknowns;

enum { MOST_ITERATIONS = 12, MOST_CORRECTIONS = 60 }; /* of Newton's method, and of the derivatives of its fixed point */
enum { MOST_CLOSINGS = 20 }; /* of Newton's method after a step: it converges in 2 to 4 */
enum { UNKNOWN_SIZES = 3 }; /* what an iteration gives beside the unknowns: their change, and what counts as small */

/* The programs of a motion: its slope, or the iteration of an implicit method; what happens after a step; the guards of events,
   and what an event does (`erk_events.h`); a step of Newton's method that puts the state back onto the constraints
   (`closing.h`); and the others of an implicit method (`irk_steps.h`). A derivative gives tangents in a sweep for those, and
   pulls cotangents back in a sweep for these. */
#define EACH_PROGRAM(DO)                                                                                                    \
  DO(RATE) DO(DERIVATIVE) DO(AFTER) DO(GUARD) DO(EVENT) DO(EVENT_DERIVATIVE) DO(CLOSING) DO(CLOSING_DERIVATIVE) DO(GUESS) \
  DO(LINEARIZE) DO(REACH) DO(REACH_DERIVATIVE) DO(ADJOINT)
#define COMMA(program) program,
enum { EACH_PROGRAM(COMMA) PROGRAMS };

#define HAS(m, program) (SLOTS(m, program) > 0)
#define CLOSES(m) HAS(m, CLOSING)
#define IMPLICIT(m) (UNKNOWNS(m) > 0)

/* A motion `dy/dt = f(parameters..., t, y)` and a run of it, with one of its programs; the others are beside it in an array. (In
   the text of a kernel there is one `Motion`, and programs are functions.) `t_at`, `y_at`, `dt_at`, `dy_at`: the inputs of the program
   that are time and state and their tangents, -1 for none. In a sweep for cotangents the program pulls a cotangent `dy_at`
   of the slope back: the outputs `stage_at` and `time_at` are those of state and time, all others those of parameters, and
   `dt0` and those like it are cotangents, which the sweep gives. */
typedef struct {
  Call call;
  Tableau method;
  Memory memory;
  Unknowns unknowns;
  /* The numbers of the state, of those of its first components that move within a step, and of the first result. */
  int64_t n, moving, results;
  int64_t directions; /* of tangents */
  int64_t t_at, y_at, dt_at, dy_at, stage_at, time_at;
  int64_t coordinates; /* how many of its first components are closed, before the speeds that follow from these */
  int64_t condition; /* the input that is zero in instances for which nothing happens after a step; -1 for none */
  int64_t adaptive, force_dtmin, recorded, max_steps, rows;
  const double *norm; /* the weights of the squared errors of the components of the state */
  Array y0, t0, t1, ts, switches, h0, control, starts, ends, kinds, counts[COUNTS], checkpoints;
  Array dy0, dt0, dt1, dts, dswitches, dys;
  Array ys, y_end, t_end, log, dlog, *bars;
} Motion;

static inline int32_t *counter(const Array *a, const int64_t batch, const int64_t instance) {
  return (int32_t *)a->data + (a->varies ? (instance < batch ? instance : batch - 1) : 0);
}

/* Checkpoints are the states at every `2**level`-th step, so that those of steps 0 ... i fit into the rows: the row of
   checkpoint i, by the scheme of `CheckpointStore` (`sweep.py`). */
static int64_t level_of(const int64_t i, const int64_t rows) {
  int64_t level = 0;
  while (i >= rows << level) level++;
  return level;
}

static int64_t place_of(int64_t i, const int64_t rows) {
  for (int64_t level = level_of(i, rows); level > 0; level = level_of(i, rows)) {
    const int64_t half = level - 1, j = (i - (rows << half)) >> level;
    i = (2 * j + 1) << half;
  }
  return i;
}
