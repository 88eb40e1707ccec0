/* The virtual machine, which executes programs of scalar operations. XLA calls it through its foreign function interface.

   A program works on numbered slots; each of its instructions applies one opcode to many slots, read and written by
   tables of slot numbers. A batch is run in lanes: a slot then holds the numbers of several instances side by side, so
   that the C compiler turns every operation into vector instructions. The layout of a program's tables is that of
   `schedule.py`, and the opcodes are numbered as in `opcodes.py`. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

enum { ADD, SUB, MUL, DIV, FMA, FMS, FNMA, NEG, MAX, MIN, SELECT, EQ, NE, LT, LE, AND, OR, NOT, IS_FINITE, SQRT, ABS, SIGN,
       SIN, COS, FLOOR, CEIL, ROUND, ROUND_AWAY, TAN, ASIN, ACOS, ATAN, ATAN2, SINH, COSH, TANH, ASINH, ACOSH, ATANH, EXP,
       EXP2, EXPM1, LOG, LOG1P, CBRT, ERF, ERFC, POW, REM, GATHER, UMUL, UFMA, UFMS, UFNMA };

typedef struct {
  uint64_t key;          /* never 0 */
  int64_t slots;        /* the number of slots */
  int64_t constants;     /* the number of constants, which occupy the first slots */
  const double *constant;
  int64_t inputs, outputs;
  const int32_t *input_ends, *output_ends; /* the end of the pairs of each input or output */
  const int32_t *input_sizes, *output_sizes;
  const int32_t *loads, *stores; /* pairs (element, slot) */
  const int32_t *code;
  int64_t length;
  /* The uniform prefix of the code: it depends on the first inputs alone, which the instances of a batch may share. */
  int64_t uniform_length, uniform_inputs, carries;
  const int32_t *uniform_live_out; /* the slots that are live out of the uniform prefix; `carries` is their number */
  const int32_t *gathers; /* of each table that gathers read: input, first element, stride, length */
} Program;

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

/* --- the hash table of programs ------------------------------------------------------------------------- */

static Program **table;
static int64_t capacity, count;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;

static int64_t find(uint64_t key) {
  int64_t i = (int64_t)(key & (uint64_t)(capacity - 1));
  while (table[i] && table[i]->key != key) i = (i + 1) & (capacity - 1);
  return i;
}

/* Returns 0 if there is not enough memory. */
static int grow(void) {
  Program **old = table;
  int64_t before = capacity, larger = before ? 2 * before : 64;
  Program **fresh = calloc((size_t)larger, sizeof *fresh);
  if (!fresh) return 0;
  table = fresh, capacity = larger;
  for (int64_t i = 0; i < before; i++)
    if (old[i]) table[find(old[i]->key)] = old[i];
  free(old);
  return 1;
}

/* `numbers`: the number of slots, constants, inputs and outputs; the length of the code and of its uniform prefix; the
   number of uniform inputs and of slots that are live out of the prefix. The arrays belong to the caller, who never frees
   them. A key that is registered already keeps its first arrays. Returns 1 if there is not enough memory, else 0. */
int jaxmbd_register(uint64_t key, const int64_t *numbers, const double *constant, const int32_t *input_sizes,
                    const int32_t *input_ends, const int32_t *loads, const int32_t *output_sizes,
                    const int32_t *output_ends, const int32_t *stores, const int32_t *code, const int32_t *uniform_live_out,
                    const int32_t *gathers) {
  pthread_rwlock_wrlock(&table_lock);
  if (2 * (count + 1) > capacity && !grow()) {
    pthread_rwlock_unlock(&table_lock);
    return 1;
  }
  int64_t i = find(key);
  if (!table[i]) {
    Program *p = malloc(sizeof *p);
    if (!p) {
      pthread_rwlock_unlock(&table_lock);
      return 1;
    }
    *p = (Program){key, numbers[0], numbers[1], constant, numbers[2], numbers[3], input_ends, output_ends,
                   input_sizes, output_sizes, loads, stores, code, numbers[4],
                   numbers[5], numbers[6], numbers[7], uniform_live_out, gathers};
    table[i] = p;
    count++;
  }
  pthread_rwlock_unlock(&table_lock);
  return 0;
}

static const Program *look_up(uint64_t key) {
  pthread_rwlock_rdlock(&table_lock);
  const Program *p = capacity ? table[find(key)] : NULL;
  pthread_rwlock_unlock(&table_lock);
  return p;
}

/* One call. Inputs and outputs larger than their size in the program vary over the instances of the batch, the others are
   uniform; `sizes`: of the inputs, then of the outputs. `common`: the slots after the uniform prefix of the program was
   run; NULL if the inputs of that prefix vary. */
typedef struct {
  const Program *program;
  void **inputs, **outputs;
  int64_t *sizes;
  int64_t batch;
  void *common;
} Call;

/* --- the interpreter: one instance for each number type and number of lanes ------------------------------- */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#define T double
#define M(g) g
#define LANES 1
#define NAME f64_1
#include "vm_lanes.h"
#define LANES 4
#define NAME f64_4
#include "vm_lanes.h"
#define LANES 8
#define NAME f64_8
#define FEW 4
#define NARROW f64_4
#include "vm_lanes.h"
#undef T
#undef M
#define T float
#define M(g) g##f
#define LANES 1
#define NAME f32_1
#include "vm_lanes.h"
#define LANES 4
#define NAME f32_4
#include "vm_lanes.h"
#define LANES 16
#define NAME f32_16
#define FEW 4
#define NARROW f32_4
#include "vm_lanes.h"

/* --- calls from XLA --------------------------------------------------------------------------------------- */

typedef int Chunk(const Call *, int64_t, int64_t); /* runs a range of instances; 0 if there is not enough memory */

typedef struct {
  Call call;
  int64_t width, chunks;
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
  const int64_t batch = w->call.batch;
  int64_t per = (batch + w->chunks - 1) / w->chunks;
  per = (per + w->width - 1) / w->width * w->width;
  for (;;) {
    int64_t k = atomic_fetch_add(&w->next, 1);
    if (k >= w->chunks) return;
    int64_t first = k * per, last = first + per < batch ? first + per : batch;
    if (first < last && !w->run(&w->call, first, last)) atomic_store(&w->failed, 1);
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

/* Runs a whole batch, by several threads if that pays; returns 0 if there is not enough memory. */
static int share_out(XLA_FFI_CallFrame *frame, const Call *c, Chunk *lanes, int64_t width) {
  const int64_t done = c->common ? c->program->uniform_length : 0;
  int64_t most = (c->batch + width - 1) / width, pool = threads(frame);
  /* A thread pays from about 20 µs of work. */
  int64_t helpers = (c->program->length - done) * most / 60000;
  if (helpers > pool - 1) helpers = pool - 1;
  Work *w = helpers < 1 ? NULL : malloc(sizeof *w);
  if (!w) return lanes(c, 0, c->batch);
  w->call = *c, w->width = width, w->run = lanes;
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

static XLA_FFI_Error *call(XLA_FFI_CallFrame *frame, Chunk *single, void *(*common)(const Call *), Chunk *lanes,
                           int64_t width) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata_Extension *e = (XLA_FFI_Metadata_Extension *)frame->extension_start;
    e->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    e->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  int64_t batch = 0;
  uint64_t key = 0;
  for (int64_t i = 0; i < frame->attrs.size; i++) {
    int64_t value = *(int64_t *)((XLA_FFI_Scalar *)frame->attrs.attrs[i])->value;
    if (frame->attrs.names[i]->ptr[0] == 'b') batch = value; else key = (uint64_t)value;
  }
  const Program *p = look_up(key);
  if (!p)
    return fail(frame, XLA_FFI_Error_Code_INTERNAL,
                "jaxmbd: this computation was compiled in another process, where its program is.");
  int64_t n = frame->args.size, m = frame->rets.size;
  void *inputs[n + 1], *outputs[m + 1];
  int64_t sizes[n + m + 1];
  for (int64_t i = 0; i < n + m; i++) {
    XLA_FFI_Buffer *b = i < n ? frame->args.args[i] : frame->rets.rets[i - n];
    *(i < n ? &inputs[i] : &outputs[i - n]) = b->data;
    sizes[i] = 1;
    for (int64_t d = 0; d < b->rank; d++) sizes[i] *= b->dims[d];
  }
  Call c = {p, inputs, outputs, sizes, batch > 1 ? batch : 1, NULL};
  int succeeded;
  if (batch <= 1) {
    succeeded = single(&c, 0, 1);
  } else {
    c.common = common(&c);
    succeeded = share_out(frame, &c, lanes, width);
    free(c.common);
  }
  return succeeded ? NULL : fail(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "jaxmbd: out of memory.");
}

XLA_FFI_Error *jaxmbd_run_f64(XLA_FFI_CallFrame *frame) { return call(frame, run_f64_1, common_f64_1, run_f64_8, 8); }
XLA_FFI_Error *jaxmbd_run_f32(XLA_FFI_CallFrame *frame) { return call(frame, run_f32_1, common_f32_1, run_f32_16, 16); }
