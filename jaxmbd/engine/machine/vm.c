/* The virtual machine, which executes programs of scalar operations. XLA calls it through its foreign function interface.

   A program works on numbered slots; each of its instructions applies one opcode to many slots, read and written by
   tables of slot numbers. A batch is run in lanes: a slot then holds the numbers of several instances side by side, so
   that the C compiler turns every operation into vector instructions. The layout of a program's tables is that of
   `schedule.py`, and the opcodes are numbered as in `opcodes.py`. */

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "motion.h"
#include "program_table.h"
#include "xla/ffi/api/c_api.h"

enum { ADD, SUB, MUL, DIV, FMA, FMS, FNMA, NEG, MAX, MIN, SELECT, EQ, NE, LT, LE, AND, OR, NOT, IS_FINITE, SQRT, ABS, SIGN,
       SIN, COS, FLOOR, CEIL, ROUND, ROUND_AWAY, TAN, ASIN, ACOS, ATAN, ATAN2, SINH, COSH, TANH, ASINH, ACOSH, ATANH, EXP,
       EXP2, EXPM1, LOG, LOG1P, CBRT, ERF, ERFC, POW, REM, GATHER, UMUL, UFMA, UFMS, UFNMA };

/* --- for the compiler of programs ------------------------------------------------------------------------- */

/* The postorder of a depth-first search from the roots, in a graph of values with up to three operands, `args`; returns
   the number of values in `order`. `state`: 0 for wanted values, 4 for those to be skipped or finished; in between, one
   more than the number of operands visited. */
int64_t jaxmbd_postorder(const int32_t *args, uint8_t *state, const int32_t *roots, int64_t count, int32_t *stack,
                         int32_t *order) {
  int64_t found = 0;
  for (int64_t k = 0; k < count; k++) {
    int64_t depth = 0;
    if (state[roots[k]] == 0) stack[depth++] = roots[k], state[roots[k]] = 1;
    while (depth) {
      const int32_t row = stack[depth - 1];
      if (state[row] == 4) {
        order[found++] = row;
        depth--;
        continue;
      }
      const int32_t next = args[3 * (int64_t)row + state[row]++ - 1];
      if (next >= 0 && state[next] == 0) stack[depth++] = next, state[next] = 1;
    }
  }
  return found;
}

/* The memory of a time loop: `ROOM` takes a part of the `WORKSPACE`. */
#define WORKSPACE(memory, count)                                 \
  void *memory = malloc((size_t)(count) * sizeof(V) + 64);       \
  if (!memory) return 0;                                         \
  V *at_ = (V *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
#define ROOM(name, count) V *name = at_; at_ += (count);
#define RELEASE(memory) free(memory);
#define ROLLED /* the text of a loop that is not repeated */
#define SLOTS(m, program_) ((m)[program_].call.program ? (m)[program_].call.program->slots : 0)
#define RESULTS(m, program_) (m)[program_].results
#define EVENTS(m) (m)->memory.events
#define ENTRY(m) (m)->memory.entry
#define UNKNOWNS(m) (m)->unknowns.count
#define FACTORS(m) (m)->unknowns.factors
#define LONGEST_STRIDE(steps) (steps).most
#define PARAMETERS(m) parameters_of((m) + DERIVATIVE)
#define WAITS(instances) ((instances) > LANES)
#define STATES(m) (m)->n
#define MOVING(m) (m)->moving
#define STAGES(m) (m)->method.stages
#define DIRECTIONS(m) (m)->directions
/* A program of a motion, with its slots. */
#define SLOPE(m, program, at, ...) JOIN(slope, NAME)((m) + program, (at)[program], __VA_ARGS__)
#define TANGENT(m, program, at, ...) JOIN(tangent, NAME)((m) + program, (at)[program], __VA_ARGS__)
#define PULL(m, program, at, ...) JOIN(pull, NAME)((m) + program, (at)[program], __VA_ARGS__)
#define COUNT(m, program, evaluations) JOIN(count, NAME)(&(m)[program].call, evaluations)
static int64_t parameters_of(const Motion *m) {
  int64_t sum = 0;
  for (int64_t k = 0; k < m->call.program->outputs; k++) sum += m->bars[k].size;
  return sum;
}

enum { OFTEN = 4096 }; /* evaluations that are counted together */

/* --- the interpreter: one instance for each number type and number of lanes ------------------------------- */

#define FEW 4 /* lanes for remainders of batches */

#define T double
#define INTEGER int64_t
#define M(g) g
#define LANES 1
#define NAME f64_single
#define KERNEL F64_SINGLE
#include "vm_lanes.h"
#if F64_WIDTH > FEW
#define LANES FEW
#define NAME f64_few
#include "vm_lanes.h"
#define NARROW f64_few
#endif
#define LANES F64_WIDTH
#define NAME f64_lanes
#define KERNEL F64_LANES
#include "vm_lanes.h"
#undef T
#undef INTEGER
#undef M
#define T float
#define INTEGER int32_t
#define M(g) g##f
#define LANES 1
#define NAME f32_single
#define KERNEL F32_SINGLE
#include "vm_lanes.h"
#if F32_WIDTH > FEW
#define LANES FEW
#define NAME f32_few
#include "vm_lanes.h"
#define NARROW f32_few
#endif
#define LANES F32_WIDTH
#define NAME f32_lanes
#define KERNEL F32_LANES
#include "vm_lanes.h"

/* --- calls from XLA --------------------------------------------------------------------------------------- */

typedef int Chunk(const void *, int64_t, int64_t); /* runs a range of instances; 0 if there is not enough memory */

typedef struct {
  const void *call; /* a `Call` or `Motion`, which is not used any more when all chunks are done */
  int64_t batch, width, chunks;
  Chunk *run;
  atomic_llong next, done;
  atomic_int holders, failed;
} Work;

static void release(Work *w) {
  if (atomic_fetch_sub(&w->holders, 1) == 1) free(w);
}

/* Takes chunks until none are left. The caller runs chunks, too, and then waits only for chunks that have been started:
   it never waits for a thread of the pool that has not begun to run. */
static void work(Work *w) {
  const int64_t batch = w->batch;
  int64_t per = (batch + w->chunks - 1) / w->chunks;
  per = (per + w->width - 1) / w->width * w->width;
  for (;;) {
    int64_t k = atomic_fetch_add(&w->next, 1);
    if (k >= w->chunks) return;
    int64_t first = k * per, last = first + per < batch ? first + per : batch;
    if (first < last && !w->run(w->call, first, last)) atomic_store(&w->failed, 1);
    atomic_fetch_add(&w->done, 1);
  }
}

static void task(void *data) {
  work(data);
  release(data);
}

static int64_t threads(XLA_FFI_CallFrame *frame) {
  int64_t n = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, NULL, frame->ctx, &n};
  XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_NumThreads(&args);
  if (error) {
    XLA_FFI_Error_Destroy_Args destroy = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
    frame->api->XLA_FFI_Error_Destroy(&destroy);
    return 1;
  }
  return n;
}

static XLA_FFI_Error *fail(XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const char *message) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message, code};
  return frame->api->XLA_FFI_Error_Create(&args);
}

/* Runs a whole batch, by several threads if that pays; returns 0 if there is not enough memory. `length`: of the code
   that an instance executes. */
static int share_out(XLA_FFI_CallFrame *frame, const void *c, int64_t batch, int64_t length, Chunk *lanes, int64_t width) {
  int64_t most = (batch + width - 1) / width, pool = frame ? threads(frame) : 1;
  /* A thread pays from about 20 µs of work. */
  int64_t helpers = length * most / 60000;
  if (helpers > pool - 1) helpers = pool - 1;
  Work *w = helpers < 1 ? NULL : malloc(sizeof *w);
  if (!w) return lanes(c, 0, batch);
  w->call = c, w->batch = batch, w->width = width, w->run = lanes;
  w->chunks = 4 * (helpers + 1) < most ? 4 * (helpers + 1) : most;
  atomic_init(&w->next, 0);
  atomic_init(&w->done, 0);
  atomic_init(&w->holders, 1);
  atomic_init(&w->failed, 0);
  for (int64_t i = 0; i < helpers; i++) {
    XLA_FFI_ThreadPool_Schedule_Args args = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, NULL, frame->ctx, task, w};
    atomic_fetch_add(&w->holders, 1);
    XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_Schedule(&args);
    if (error) {
      XLA_FFI_Error_Destroy_Args destroy = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
      frame->api->XLA_FFI_Error_Destroy(&destroy);
      release(w);
    }
  }
  work(w);
  while (atomic_load(&w->done) < w->chunks) {
  }
  const int succeeded = !atomic_load(&w->failed);
  release(w);
  return succeeded;
}

/* The operands and results of a call, by XLA or by Python: their numbers and how many these are. */
typedef struct {
  void **data;
  const int64_t *sizes;
  int64_t inputs, outputs;
  XLA_FFI_CallFrame *frame; /* NULL for a call by Python */
} Buffers;

enum { DONE, NO_MEMORY, NO_PROGRAM, NO_STRAIGHT_LINE };

/* What runs programs and motions; of each pair the first is for one instance, the second for lanes. */
enum { SOLVE, TANGENTS, COTANGENTS, KINDS };

typedef struct {
  Chunk *program[2], *motion[KINDS][2];
  void *(*common)(const Call *);
  int64_t width;
  int numbers[2]; /* of the kernels */
} Kernels;

#define PAIR(kind, t) {kind##_##t##_single, kind##_##t##_lanes}
#define KERNELS_OF(t, width, single, lanes)                                                                            \
  {PAIR(run, t), {PAIR(solve, t), PAIR(tangents, t), PAIR(cotangents, t)}, common_##t##_single, width, {single, lanes}}
static const Kernels f64 = KERNELS_OF(f64, F64_WIDTH, F64_SINGLE, F64_LANES);
static const Kernels f32 = KERNELS_OF(f32, F32_WIDTH, F32_SINGLE, F32_LANES);

static int run_program(const Kernels *kernels, const Buffers *b, uint64_t key, int64_t batch) {
  const Program *p = look_up(key);
  if (!p) return NO_PROGRAM;
  Call c = {p, b->data, b->data + b->inputs, (int64_t *)b->sizes, batch > 1 ? batch : 1, NULL, 0};
  if (batch <= 1) return kernels->program[0](&c, 0, 1) ? DONE : NO_MEMORY;
  c.common = kernels->common(&c);
  const int64_t length = p->length - (c.common ? p->uniform_length : 0);
  const int succeeded = share_out(b->frame, &c, c.batch, length, kernels->program[1], kernels->width);
  free(c.common);
  return succeeded ? DONE : NO_MEMORY;
}

/* The settings of a call for motions: the first operand. */
enum { BATCH, DIRECTIONS, MOVING, TIMES, SWITCHES, STATES, STAGES, DEGREE, FSAL, SSAL, ADAPTIVE, FORCE_DTMIN, MAX_STEPS, ROWS,
       WITH_STATE, WITH_TIMES, CLOSED, ENGINE_WANTED, MEMORY, UNKNOWNS = MEMORY + sizeof(Memory) / sizeof(int64_t),
       MOTION = UNKNOWNS + sizeof(Unknowns) / sizeof(int64_t) };
/* Then for each of the programs, a key of zero for one that the motion does not have: */
enum { KEY, T_AT, Y_AT, DT_AT, DY_AT, STAGE_AT, TIME_AT, CONDITION, PROGRAM };

/* The next operand or result, with `size` numbers for each instance. */
static Array next_array(const Buffers *b, int64_t *at, int64_t size) {
  const int64_t k = (*at)++;
  return (Array){b->data[k], size, b->sizes[k] != size};
}

/* Entries in the record of a run: steps, and events, the first one of which is the start, and samples. */
static int64_t entries(const Motion *m) {
  return m->max_steps + (m->memory.events ? m->memory.room + 2 + m->memory.samples : 0);
}

/* Sets up what all programs of a motion have, from settings. */
static Motion common_motion(const Buffers *b, const int64_t *settings) {
  const double *tableau = b->data[1];
  const int64_t s = settings[STAGES];
  Motion m = {{0}};
  m.method = (Tableau){s, settings[DEGREE], settings[FSAL], settings[SSAL],
                       tableau, tableau + s * s, tableau + s * (s + 1), tableau + s * (s + 2), tableau + s * (s + 3)};
  m.n = settings[STATES], m.moving = settings[MOVING], m.directions = settings[DIRECTIONS], m.norm = b->data[2];
  m.adaptive = settings[ADAPTIVE], m.force_dtmin = settings[FORCE_DTMIN];
  m.max_steps = settings[MAX_STEPS], m.rows = settings[ROWS], m.coordinates = settings[CLOSED];
  memcpy(&m.memory, settings + MEMORY, sizeof m.memory);
  memcpy(&m.unknowns, settings + UNKNOWNS, sizeof m.unknowns);
  m.call.batch = settings[BATCH] > 1 ? settings[BATCH] : 1, m.call.interpreted = settings[ENGINE_WANTED] == INTERPRETER;
  return m;
}

/* Sets up a program of a motion from settings and the operands from `at` on. `inputs` and `sizes` have room for all inputs and
   outputs of the program; `zeros` stand for those inputs that are not operands. */
static void set_up_program(Motion *m, const Program *p, const Buffers *b, const int64_t *program, int64_t *at, void **inputs,
                           int64_t *sizes, void *zeros) {
  m->t_at = program[T_AT], m->y_at = program[Y_AT], m->dt_at = program[DT_AT], m->dy_at = program[DY_AT];
  m->stage_at = program[STAGE_AT], m->time_at = program[TIME_AT], m->condition = program[CONDITION];
  for (int64_t k = 0; k < p->inputs; k++) {
    const int inner = k == m->t_at || k == m->y_at || k == m->dt_at || k == m->dy_at;
    inputs[k] = inner ? zeros : b->data[*at], sizes[k] = inner ? p->input_sizes[k] : b->sizes[(*at)++];
  }
  m->results = p->output_sizes[0], m->call.program = p, m->call.inputs = inputs, m->call.sizes = sizes;
}

/* The times of a run, and those of its switches, if it has any. */
static void set_up_times(Motion *m, const Buffers *b, int64_t *at, const int64_t *settings) {
  m->t0 = next_array(b, at, 1), m->t1 = next_array(b, at, 1), m->ts = next_array(b, at, settings[TIMES]);
  if (settings[SWITCHES]) m->switches = next_array(b, at, settings[SWITCHES]);
}

/* The operands from `at` on that belong to no program, and the results: of a run, */
static void set_up_run(Motion *m, const Buffers *b, int64_t at, const int64_t *settings) {
  const int64_t n = m->n, times = settings[TIMES];
  int64_t out = b->inputs;
  m->y0 = next_array(b, &at, n);
  set_up_times(m, b, &at, settings);
  m->h0 = next_array(b, &at, 1), m->control = next_array(b, &at, CONTROLS);
  m->ys = next_array(b, &out, times * m->moving), m->y_end = next_array(b, &out, n);
  if (m->memory.events) m->log = next_array(b, &out, m->memory.room * m->memory.entry);
  m->t_end = next_array(b, &out, 1);
  for (int k = 0; k < COUNTS; k++) m->counts[k] = next_array(b, &out, 1);
  m->recorded = out < b->inputs + b->outputs;
  if (!m->recorded) return;
  m->starts = next_array(b, &out, entries(m)), m->ends = next_array(b, &out, entries(m));
  if (m->memory.events) m->kinds = next_array(b, &out, entries(m));
  m->checkpoints = next_array(b, &out, (m->rows + 1) * n);
}

/* of both sweeps, */
static void set_up_steps(Motion *m, const Buffers *b, int64_t *at, const int64_t *settings) {
  set_up_times(m, b, at, settings);
  m->starts = next_array(b, at, entries(m)), m->ends = next_array(b, at, entries(m));
  if (m->memory.events) m->kinds = next_array(b, at, entries(m));
  m->counts[ACCEPTED] = next_array(b, at, 1), m->counts[SAVED] = next_array(b, at, 1);
}

/* of a sweep for tangents, */
static void set_up_tangents(Motion *m, const Buffers *b, int64_t at, const int64_t *settings) {
  const int64_t n = m->n, times = settings[TIMES], directions = m->directions;
  int64_t out = b->inputs;
  m->y0 = next_array(b, &at, n);
  set_up_steps(m, b, &at, settings);
  if (settings[WITH_STATE]) m->dy0 = next_array(b, &at, directions * n);
  if (settings[WITH_TIMES]) {
    m->dt0 = next_array(b, &at, directions), m->dt1 = next_array(b, &at, directions);
    m->dts = next_array(b, &at, directions * times);
    if (settings[SWITCHES]) m->dswitches = next_array(b, &at, directions * settings[SWITCHES]);
  }
  m->ys = next_array(b, &out, directions * times * m->moving), m->y_end = next_array(b, &out, directions * n);
  if (m->memory.events) m->log = next_array(b, &out, directions * m->memory.room * m->memory.entry);
}

/* and of a sweep for cotangents. */
static void set_up_cotangents(Motion *m, const Buffers *b, int64_t at, const int64_t *settings) {
  const Motion *pull = m + DERIVATIVE;
  const Program *r = pull->call.program;
  const int64_t n = m->n, times = settings[TIMES];
  int64_t out = b->inputs;
  set_up_steps(m, b, &at, settings);
  m->checkpoints = next_array(b, &at, (m->rows + 1) * n);
  m->dys = next_array(b, &at, times * m->moving), m->dy0 = next_array(b, &at, n);
  if (m->memory.events) m->dlog = next_array(b, &at, m->memory.room * m->memory.entry);
  for (int64_t k = 0; k < r->outputs; k++)
    if (k != pull->stage_at && k != pull->time_at) pull->bars[k] = next_array(b, &out, r->output_sizes[k]);
  m->y_end = next_array(b, &out, n);
  if (!settings[WITH_TIMES]) return;
  m->dt0 = next_array(b, &out, 1), m->dt1 = next_array(b, &out, 1), m->dts = next_array(b, &out, times);
  if (settings[SWITCHES]) m->dswitches = next_array(b, &out, settings[SWITCHES]);
}

static int run_motion(const Kernels *kernels, const Buffers *b, int kind, const char **failure) {
  const int64_t *settings = b->data[0], *program = settings + MOTION;
  const Motion common = common_motion(b, settings);
  const int in_lanes = settings[BATCH] > 1;
  const Program *all[PROGRAMS] = {NULL}, *main = NULL;
  int64_t inputs = 0;
  for (int k = 0; k < PROGRAMS; k++) {
    const uint64_t key = (uint64_t)program[PROGRAM * k + KEY];
    if (!key) continue;
    all[k] = look_up(key);
    if (!all[k]) return NO_PROGRAM;
    if (settings[ENGINE_WANTED] == STRAIGHT_LINE && (*failure = require_straight_line(all[k], kernels->numbers[in_lanes])))
      return NO_STRAIGHT_LINE;
    inputs += all[k]->inputs + 1;
    if (!main) main = all[k];
  }
  const int64_t working = common.n + common.memory.entry + 1 + 2 * common.unknowns.count + common.unknowns.factors + common.method.stages * common.moving;
  double *zeros = calloc((size_t)(working * common.directions) + 1, sizeof *zeros);
  if (!zeros) return NO_MEMORY;
  Motion m[PROGRAMS];
  int64_t at = 3, sizes[inputs], first = 0;
  void *data[inputs];
  for (int k = 0; k < PROGRAMS; k++) {
    m[k] = common;
    if (!all[k]) continue;
    set_up_program(m + k, all[k], b, program + PROGRAM * k, &at, data + first, sizes + first, zeros);
    first += all[k]->inputs + 1;
  }
  Array bars[kind == COTANGENTS ? all[DERIVATIVE]->outputs + 1 : 1];
  memset(bars, 0, sizeof bars);
  for (int k = 0; k < PROGRAMS; k++) m[k].bars = bars;
  if (kind == SOLVE) set_up_run(m, b, at, settings);
  else if (kind == TANGENTS) set_up_tangents(m, b, at, settings);
  else set_up_cotangents(m, b, at, settings);
  Chunk *run = kernels->motion[kind][in_lanes];
  const int succeeded = share_out(b->frame, m, m->call.batch, 1000 * main->length, run, in_lanes ? kernels->width : 1);
  free(zeros);
  return succeeded ? DONE : NO_MEMORY;
}

/* Calls by Python, with arrays in the place of XLA's buffers. */

int jaxmbd_call_program(int64_t wide, uint64_t key, int64_t batch, void **data, const int64_t *sizes, int64_t inputs,
                        int64_t outputs) {
  const Buffers b = {data, sizes, inputs, outputs, NULL};
  return run_program(wide ? &f64 : &f32, &b, key, batch);
}

int jaxmbd_call_motion(int64_t wide, int64_t kind, void **data, const int64_t *sizes, int64_t inputs, int64_t outputs,
                       const char **failure) {
  const Buffers b = {data, sizes, inputs, outputs, NULL};
  return run_motion(wide ? &f64 : &f32, &b, (int)kind, failure);
}

enum { HUGE_PAGE = 1 << 21 }; /* [bytes] */

/* Asks for huge pages under a large result: XLA allocates it anew for each call, and a page is cleared when it is first
   written. */
static void expect_result(const XLA_FFI_Buffer *b, const int64_t size, const int wide) {
#ifdef MADV_HUGEPAGE
  const int64_t bytes = size * (wide && b->dtype != XLA_FFI_DataType_S32 ? 8 : 4);
  const uintptr_t begin = (uintptr_t)b->data, mask = ~(uintptr_t)(HUGE_PAGE - 1);
  const uintptr_t first = (begin + HUGE_PAGE - 1) & mask, last = (begin + (uintptr_t)bytes) & mask;
  if (last > first) madvise((void *)first, last - first, MADV_HUGEPAGE);
#else
  (void)b, (void)size, (void)wide;
#endif
}

static XLA_FFI_Error *call(XLA_FFI_CallFrame *frame, const Kernels *kernels, int kind) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata_Extension *e = (XLA_FFI_Metadata_Extension *)frame->extension_start;
    e->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    e->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  int64_t n = frame->args.size, m = frame->rets.size, batch = 0;
  uint64_t key = 0;
  void *data[n + m + 1];
  int64_t sizes[n + m + 1];
  for (int64_t i = 0; i < n + m; i++) {
    XLA_FFI_Buffer *b = i < n ? frame->args.args[i] : frame->rets.rets[i - n];
    data[i] = b->data, sizes[i] = 1;
    for (int64_t d = 0; d < b->rank; d++) sizes[i] *= b->dims[d];
    if (i >= n) expect_result(b, sizes[i], kernels == &f64);
  }
  for (int64_t i = 0; i < frame->attrs.size; i++) {
    int64_t value = *(int64_t *)((XLA_FFI_Scalar *)frame->attrs.attrs[i])->value;
    if (frame->attrs.names[i]->ptr[0] == 'b') batch = value; else key = (uint64_t)value;
  }
  const Buffers b = {data, sizes, n, m, frame};
  const char *failure = NULL;
  const int outcome = kind < 0 ? run_program(kernels, &b, key, batch) : run_motion(kernels, &b, kind, &failure);
  if (outcome == NO_STRAIGHT_LINE) return fail(frame, XLA_FFI_Error_Code_FAILED_PRECONDITION, failure);
  if (outcome == NO_PROGRAM)
    return fail(frame, XLA_FFI_Error_Code_INTERNAL,
                "jaxmbd: this computation was compiled in another process, where its program is.");
  return outcome == DONE ? NULL : fail(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "jaxmbd: out of memory.");
}

/* The error of a running program whose text Python has written: the operand, which ends with a zero. An error raised by
   a callback would stand behind the frames of JAX that led to it. */
XLA_FFI_Error *jaxmbd_raise(XLA_FFI_CallFrame *frame) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) return call(frame, &f64, -1);
  const XLA_FFI_Buffer *text = frame->args.args[0];
  return fail(frame, XLA_FFI_Error_Code_INTERNAL, text->data);
}

#define HANDLERS(name, kind)                                                                        \
  XLA_FFI_Error *jaxmbd_##name##_f64(XLA_FFI_CallFrame *frame) { return call(frame, &f64, kind); } \
  XLA_FFI_Error *jaxmbd_##name##_f32(XLA_FFI_CallFrame *frame) { return call(frame, &f32, kind); }

HANDLERS(run, -1)
HANDLERS(solve, SOLVE)
HANDLERS(tangents, TANGENTS)
HANDLERS(cotangents, COTANGENTS)
