/* An instance of the model, as both versions of FMI see it: modes, values by reference, derivatives, states that are kept.

   It stands behind `motion.c`. The numbers of statuses are the same in both versions. Memory is allocated for an instance and
   for a state that is kept, never in a step. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { OK, WARNING, DISCARD, ERROR };

/* The modes, as bits, so that a function may be allowed in several of them. */
enum { INSTANTIATED = 1, INITIALIZATION = 2, EVENT = 4, CONTINUOUS = 8, STEPPING = 16, TERMINATED = 32 };
#define RUNNING (EVENT | CONTINUOUS | STEPPING)
#define ANY (INSTANTIATED | INITIALIZATION | RUNNING | TERMINATED)

/* What `GetFMUState` keeps. `stop`: the time beyond which there is no step. */
typedef struct {
  Motion motion;
  double stop;
  int mode;
} Kept;

/* `text`: the last message; `rates`, `outputs`, the reported `states` and the `heights` are those of the present if
   they are known. */
typedef struct {
  Kept kept;
  Stages stages;
  double rates[STATES + 1], outputs[OUTPUTS + 1], states[STATES + 1], heights[HEIGHTS + 1];
  int knows_rates, knows_outputs, knows_states, knows_heights, is_for_steps;
  void *environment;
  void (*logger)(void);
  char name[128], text[512];
} Instance;

static void report(Instance *i, int status); /* of the version */

/* Tells what is wrong, and returns the status. */
static int fail(Instance *i, const int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(i->text, sizeof i->text, format, arguments);
  va_end(arguments);
  report(i, status);
  return status;
}

static int in_mode(Instance *i, const int modes, const char *function) {
  static const char *const names[] = {"Instantiated", "Initialization Mode", "Event Mode", "Continuous-Time Mode",
                                      "Step Mode", "Terminated"};
  if (i->kept.mode & modes) return OK;
  int k = 0;
  while (i->kept.mode >> (k + 1)) k++;
  return fail(i, ERROR, "%s is not allowed now, in the state '%s' of an instance.", function, names[k]);
}

/* An instance in its first mode; NULL if it is not for this model, which `report` cannot tell without one. */
static Instance *new_instance(const char *name, const int is_for_steps, void *environment, void (*logger)(void)) {
  Instance *i = calloc(1, sizeof *i);
  if (!i) return NULL;
  motion_start(&i->kept.motion);
  i->kept.stop = INFINITY, i->kept.mode = INSTANTIATED;
  i->is_for_steps = is_for_steps, i->environment = environment, i->logger = logger;
  snprintf(i->name, sizeof i->name, "%s", name ? name : "");
  return i;
}

/* The same if its token is that of the model. */
static Instance *checked_instance(Instance *i, const char *token) {
  if (!i || (token && !strcmp(token, TOKEN))) return i;
  fail(i, ERROR, "The token %.80s is not that of this model, %s: the description and the binary are of different files.",
       token ? token : "(none)", TOKEN);
  free(i);
  return NULL;
}

static void forget(Instance *i) { i->knows_rates = i->knows_outputs = i->knows_states = i->knows_heights = 0; }

static int reset(Instance *i) {
  motion_start(&i->kept.motion);
  i->kept.stop = INFINITY, i->kept.mode = INSTANTIATED;
  forget(i);
  return OK;
}

/* --- laws with kinks ------------------------------------------------------------------------------------------------

   In model exchange each law holds on which sides of its kinks it is, from one event to the next. In co-simulation, and before
   a motion has begun, laws take the signs themselves. */

#if HEIGHTS
/* The heights, whose zeros are events. */
static void evaluate_heights(const Motion *m, double *values) { heights(AT_NOW(m), values); }

/* The state after the changes of sides that are due. */
static void change_sides(Motion *m) {
  double changed[STATES + 1];
  changed_states(AT_NOW(m), changed);
  memcpy(m->x, changed, STATES * sizeof *changed);
}

/* The state at the start of a motion. */
static void begin_sides(Motion *m) {
  double begun[STATES + 1];
  begun_states(AT_NOW(m), begun);
  memcpy(m->x, begun, STATES * sizeof *begun);
}
#else
static void evaluate_heights(const Motion *m, double *values) { (void)m, (void)values; }
static void change_sides(Motion *m) { (void)m; }
static void begin_sides(Motion *m) { (void)m; }
#endif

/* --- variables ------------------------------------------------------------------------------------------------- */

/* References count the time, the states, their rates, the inputs, the parameters, the outputs and the event indicators. */
enum { FIRST_STATE = 1, FIRST_RATE = FIRST_STATE + STATES, FIRST_INPUT = FIRST_RATE + STATES };
enum { FIRST_PARAMETER = FIRST_INPUT + INPUTS, FIRST_OUTPUT = FIRST_PARAMETER + PARAMETERS };
enum { FIRST_INDICATOR = FIRST_OUTPUT + OUTPUTS, VARIABLES = FIRST_INDICATOR + HEIGHTS };

typedef enum { TIME, STATE, RATE, INPUT, PARAMETER, OUTPUT, INDICATOR, NONE } Kind;

static Kind kind_of(const unsigned reference, int *place) {
  static const unsigned first[] = {0,           FIRST_STATE,     FIRST_RATE, FIRST_INPUT, FIRST_PARAMETER,
                                   FIRST_OUTPUT, FIRST_INDICATOR, VARIABLES};
  for (int kind = TIME; kind < NONE; kind++)
    if (reference < first[kind + 1]) return *place = (int)(reference - first[kind]), (Kind)kind;
  return NONE;
}

static int no_variable(Instance *i, const unsigned reference) {
  return fail(i, ERROR, "There is no variable with the value reference %u: those of this model are 0 to %d.", reference,
              VARIABLES - 1);
}

static int wrong_count(Instance *i, const char *function, const size_t got, const size_t wanted) {
  return fail(i, ERROR, "%s: %lu numbers were given where there are %lu.", function, (unsigned long)got,
              (unsigned long)wanted);
}

/* Closes the joints if states or parameters were set. */
static int settle(Instance *i) {
  Motion *m = &i->kept.motion;
  if (!m->is_moved || !(i->kept.mode & (INITIALIZATION | EVENT | STEPPING))) return OK;
  forget(i);
  if (motion_close(m)) return OK;
  return fail(i, ERROR,
              "The joints cannot be closed at t = %g s from the states and parameters that were set: set states that "
              "nearly satisfy the constraints.", m->t);
}

static int know_rates(Instance *i) {
  if (i->knows_rates) return OK;
  const int status = settle(i);
  const Motion *m = &i->kept.motion;
  const double t[1] = {evaluation_time(m, m->t)};
  if (status != OK) return status;
  rates(t, m->x, m->memory, m->u, m->p, i->rates);
  i->knows_rates = 1;
  return OK;
}

static int know_outputs(Instance *i) {
  if (i->knows_outputs) return OK;
  const int status = settle(i);
  const Motion *m = &i->kept.motion;
  const double t[1] = {evaluation_time(m, m->t)};
  if (status != OK) return status;
  outputs(t, m->x, m->memory, m->u, m->p, i->outputs);
  i->knows_outputs = 1;
  return OK;
}

static int know_heights(Instance *i) {
  if (i->knows_heights) return OK;
  const int status = settle(i);
  const Motion *m = &i->kept.motion;
  if (status != OK) return status;
  evaluate_heights(m, i->heights);
  i->knows_heights = 1;
  return OK;
}

/* The value of a state: in co-simulation, where nobody else integrates it, as it is reported. */
static double state_of(Instance *i, const int at) {
  if (i->kept.mode != STEPPING || i->kept.motion.is_moved) return i->kept.motion.x[at];
  if (!i->knows_states) motion_report(&i->kept.motion, i->states);
  i->knows_states = 1;
  return i->states[at];
}

static int get_values(Instance *i, const unsigned *references, const size_t n, double *values) {
  const Motion *m = &i->kept.motion;
  for (size_t k = 0; k < n; k++) {
    int at = 0, status = OK;
    switch (kind_of(references[k], &at)) {
      case TIME: values[k] = m->t; break;
      case STATE: values[k] = state_of(i, at); break;
      case RATE:
        status = know_rates(i);
        values[k] = i->rates[at];
        break;
      case INPUT: values[k] = m->u[at]; break;
      case PARAMETER: values[k] = m->p[at]; break;
      case OUTPUT:
        status = know_outputs(i);
        values[k] = i->outputs[at];
        break;
      case INDICATOR:
        status = know_heights(i);
        values[k] = i->heights[at];
        break;
      default: return no_variable(i, references[k]);
    }
    if (status != OK) return status;
  }
  return OK;
}

/* Sets all of them, or none if one cannot be set. */
static int set_values(Instance *i, const unsigned *references, const size_t n, const double *values) {
  Motion *m = &i->kept.motion;
  for (size_t k = 0; k < n; k++) {
    int at = 0, modes = 0;
    switch (kind_of(references[k], &at)) {
      case INPUT: modes = INSTANTIATED | INITIALIZATION | RUNNING; break;
      case PARAMETER: modes = INSTANTIATED | INITIALIZATION | EVENT | STEPPING; break;
      case STATE: modes = INSTANTIATED | INITIALIZATION; break;
      case NONE: return no_variable(i, references[k]);
      default: return fail(i, ERROR, "'%s' is computed, and cannot be set.", names[references[k]]);
    }
    if (in_mode(i, modes, "Setting a variable") != OK)
      return fail(i, ERROR, "'%s' cannot be set now.", names[references[k]]);
    if (!isfinite(values[k])) return fail(i, ERROR, "'%s' must be finite, got %g.", names[references[k]], values[k]);
  }
  for (size_t k = 0; k < n; k++) {
    int at = 0;
    const Kind kind = kind_of(references[k], &at);
    double *place = kind == INPUT ? m->u : kind == PARAMETER ? m->p : m->x;
    if (kind != INPUT && place[at] != values[k]) m->is_moved = 1;
    place[at] = values[k];
  }
  forget(i);
  return OK;
}

/* --- modes ------------------------------------------------------------------------------------------------------- */

static int enter_initialization(Instance *i, const double start, const double stop) {
  if (in_mode(i, INSTANTIATED, "EnterInitializationMode") != OK) return ERROR;
  if (!isfinite(start)) return fail(i, ERROR, "The start time must be finite, got %g.", start);
  i->kept.motion.t = start, i->kept.motion.is_moved = 1;
  i->kept.stop = stop;
  i->kept.mode = INITIALIZATION;
  forget(i);
  return OK;
}

static int exit_initialization(Instance *i) {
  if (in_mode(i, INITIALIZATION, "ExitInitializationMode") != OK || settle(i) != OK) return ERROR;
  i->kept.mode = i->is_for_steps ? STEPPING : EVENT;
  if (!i->is_for_steps) begin_sides(&i->kept.motion);
  forget(i);
  return OK;
}

static int change_mode(Instance *i, const int from, const int to, const char *function) {
  if (in_mode(i, from, function) != OK) return ERROR;
  i->kept.mode = to;
  return OK;
}

/* The update in Event Mode: what switches at this time has switched, joints are closed if states or parameters were
   set, and sides that are due have changed. `changed`: 1 if that has changed states; `next`: the time of the next event,
   infinite if there is none. */
static int update(Instance *i, int *changed, double *next) {
  double before[STATES + 1];
  if (in_mode(i, EVENT, "UpdateDiscreteStates") != OK) return ERROR;
  memcpy(before, i->kept.motion.x, sizeof before);
  if (settle(i) != OK) return ERROR;
  motion_locate(&i->kept.motion);
  change_sides(&i->kept.motion);
  forget(i);
  *changed = memcmp(before, i->kept.motion.x, sizeof before) != 0;
  *next = next_switch(&i->kept.motion, i->kept.motion.t);
  return OK;
}

static int set_time(Instance *i, const double t) {
  if (in_mode(i, EVENT | CONTINUOUS, "SetTime") != OK) return ERROR;
  i->kept.motion.t = t;
  forget(i);
  return OK;
}

static int set_states(Instance *i, const double *states, const size_t n) {
  if (in_mode(i, CONTINUOUS, "SetContinuousStates") != OK) return ERROR;
  if (n != STATES) return wrong_count(i, "SetContinuousStates", n, STATES);
  memcpy(i->kept.motion.x, states, n * sizeof *states);
  forget(i);
  return OK;
}

static int get_states(Instance *i, double *states, const size_t n) {
  if (n != STATES) return wrong_count(i, "GetContinuousStates", n, STATES);
  memcpy(states, i->kept.motion.x, n * sizeof *states);
  return OK;
}

static int get_nominals(Instance *i, double *values, const size_t n) {
  if (n != STATES) return wrong_count(i, "GetNominalsOfContinuousStates", n, STATES);
  memcpy(values, nominals, n * sizeof *values);
  return OK;
}

static int get_rates(Instance *i, double *values, const size_t n) {
  if (n != STATES) return wrong_count(i, "GetContinuousStateDerivatives", n, STATES);
  if (know_rates(i) != OK) return ERROR;
  memcpy(values, i->rates, n * sizeof *values);
  return OK;
}

static int get_indicators(Instance *i, double *values, const size_t n) {
  if (n != HEIGHTS) return wrong_count(i, "GetEventIndicators", n, HEIGHTS);
  if (know_heights(i) != OK) return ERROR;
  memcpy(values, i->heights, n * sizeof *values);
  return OK;
}

static int completed_step(Instance *i) {
  if (in_mode(i, CONTINUOUS, "CompletedIntegratorStep") != OK) return ERROR;
  motion_settle(&i->kept.motion);
  forget(i);
  return OK;
}

/* A step of co-simulation. */
static int do_step(Instance *i, const double from, const double length) {
  Motion *m = &i->kept.motion;
  if (in_mode(i, STEPPING, "DoStep") != OK) return ERROR;
  const double size = fmax(fmax(fabs(from), fabs(length)), fabs(m->t)), end = from + length;
  if (!(fabs(from - m->t) <= 1e-9 * size)) /* importers add up their steps */
    return fail(i, ERROR, "DoStep begins at %.12g s, and the model is at %.12g s.", from, m->t);
  if (!(length > 0) || !isfinite(length)) return fail(i, ERROR, "DoStep: the step must be positive, got %g s.", length);
  if (end > i->kept.stop + 1e-9 * size)
    return fail(i, ERROR, "DoStep ends at %.12g s, and the stop time is %.12g s.", end, i->kept.stop);
  if (settle(i) != OK) return ERROR;
  forget(i);
  m->t = from;
  if (motion_advance(m, &i->stages, end)) return OK;
  return fail(i, DISCARD,
              "The state is not finite after t = %.12g s: the steps within, of %g s at most, are too long for a stiff "
              "mechanism (export it with a smaller step), or its position is singular.", m->t, STEP);
}

/* --- derivatives --------------------------------------------------------------------------------------------------- */

/* Where the seed or the sensitivity of a known variable is. */
static double *known(const unsigned reference, double *t, double *x, double *u, double *p) {
  int at = 0;
  switch (kind_of(reference, &at)) {
    case TIME: return t;
    case STATE: return x + at;
    case INPUT: return u + at;
    default: return p + at;
  }
}

/* The same of an unknown one: a rate, an output, or an output that is a state. */
static double *unknown(const unsigned reference, double *dx, double *y, double *x) {
  int at = 0;
  switch (kind_of(reference, &at)) {
    case RATE: return dx + at;
    case OUTPUT: return y + at;
    default: return x + at;
  }
}

static int check_derivative(Instance *i, const unsigned *unknowns, const size_t n, const unsigned *knowns, const size_t m) {
  int at;
  if (in_mode(i, INITIALIZATION | RUNNING, "A derivative") != OK || settle(i) != OK) return ERROR;
  for (size_t k = 0; k < n; k++) {
    const Kind kind = kind_of(unknowns[k], &at);
    if (kind == NONE) return no_variable(i, unknowns[k]);
    if (kind != RATE && kind != OUTPUT && kind != STATE)
      return fail(i, ERROR, "'%s' is no unknown: derivatives are those of rates and outputs.", names[unknowns[k]]);
  }
  for (size_t k = 0; k < m; k++) {
    const Kind kind = kind_of(knowns[k], &at);
    if (kind == NONE) return no_variable(i, knowns[k]);
    if (kind == RATE || kind == OUTPUT || kind == INDICATOR)
      return fail(i, ERROR, "'%s' is no known: derivatives are by states, inputs, parameters and the time.",
                  names[knowns[k]]);
  }
  return OK;
}

static int forward(Instance *i, const unsigned *unknowns, const size_t n, const unsigned *knowns, const size_t m,
                   const double *seeds, double *results) {
  const Motion *at = &i->kept.motion;
  double dt[1] = {0}, dx[STATES + 1] = {0}, du[INPUTS + 1] = {0}, dp[PARAMETERS + 1] = {0};
  double drates[STATES + 1], doutputs[OUTPUTS + 1];
  if (check_derivative(i, unknowns, n, knowns, m) != OK) return ERROR;
  const double t[1] = {evaluation_time(at, at->t)};
  for (size_t k = 0; k < m; k++) *known(knowns[k], dt, dx, du, dp) += seeds[k];
  tangents(t, at->x, at->memory, at->u, at->p, dt, dx, du, dp, drates, doutputs);
  for (size_t k = 0; k < n; k++) results[k] = *unknown(unknowns[k], drates, doutputs, dx);
  return OK;
}

#if HAS_ADJOINT
static int adjoint(Instance *i, const unsigned *unknowns, const size_t n, const unsigned *knowns, const size_t m,
                   const double *seeds, double *results) {
  const Motion *at = &i->kept.motion;
  double brates[STATES + 1] = {0}, boutputs[OUTPUTS + 1] = {0}, direct[STATES + 1] = {0};
  double bt[1], bx[STATES + 1], bu[INPUTS + 1], bp[PARAMETERS + 1];
  if (check_derivative(i, unknowns, n, knowns, m) != OK) return ERROR;
  const double t[1] = {evaluation_time(at, at->t)};
  for (size_t k = 0; k < n; k++) *unknown(unknowns[k], brates, boutputs, direct) += seeds[k];
  cotangents(t, at->x, at->memory, at->u, at->p, brates, boutputs, bt, bx, bu, bp);
  for (int k = 0; k < STATES; k++) bx[k] += direct[k];
  for (size_t k = 0; k < m; k++) results[k] = *known(knowns[k], bt, bx, bu, bp);
  return OK;
}
#endif

/* --- states that are kept -------------------------------------------------------------------------------------------- */

static int keep(Instance *i, void **state) {
  if (!*state) *state = malloc(sizeof(Kept));
  if (!*state) return fail(i, ERROR, "There is no memory for the state.");
  memcpy(*state, &i->kept, sizeof(Kept));
  return OK;
}

static int restore(Instance *i, const void *state) {
  if (!state) return fail(i, ERROR, "There is no such state.");
  memcpy(&i->kept, state, sizeof(Kept));
  forget(i);
  return OK;
}

/* As bytes: the token of the model, then the state. */
enum { TOKEN_SIZE = sizeof TOKEN - 1, SERIALIZED = TOKEN_SIZE + sizeof(Kept) };

static int serialize(Instance *i, const void *state, void *bytes, const size_t size) {
  if (!state) return fail(i, ERROR, "There is no such state.");
  if (size != SERIALIZED) return wrong_count(i, "SerializeFMUState", size, SERIALIZED);
  memcpy(bytes, TOKEN, TOKEN_SIZE);
  memcpy((char *)bytes + TOKEN_SIZE, state, sizeof(Kept));
  return OK;
}

static int deserialize(Instance *i, const void *bytes, const size_t size, void **state) {
  if (size != SERIALIZED) return wrong_count(i, "DeserializeFMUState", size, SERIALIZED);
  if (memcmp(bytes, TOKEN, TOKEN_SIZE)) return fail(i, ERROR, "The bytes are the state of another model.");
  if (!*state) *state = malloc(sizeof(Kept));
  if (!*state) return fail(i, ERROR, "There is no memory for the state.");
  memcpy(*state, (const char *)bytes + TOKEN_SIZE, sizeof(Kept));
  return OK;
}
