/* The programs that the virtual machine knows, by their keys, and the straight-line code that is installed for them. */

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "program.h"

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

/* The code in half its size; NULL if its numbers are too large, or there is not enough memory. */
static const uint16_t *shortened(const int32_t *code, const int64_t length) {
  for (int64_t i = 0; i < length; i++)
    if (code[i] > UINT16_MAX) return NULL;
  uint16_t *shorter = malloc((size_t)length * sizeof *shorter);
  for (int64_t i = 0; shorter && i < length; i++) shorter[i] = (uint16_t)code[i];
  return shorter;
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
    Native *native = calloc(1, sizeof *native);
    if (!p || !native) {
      free(p), free(native);
      pthread_rwlock_unlock(&table_lock);
      return 1;
    }
    *p = (Program){key, numbers[0], numbers[1], constant, numbers[2], numbers[3], input_ends, output_ends,
                   input_sizes, output_sizes, loads, stores, code, shortened(code, numbers[4]), numbers[4],
                   numbers[5], numbers[6], numbers[7], uniform_live_out, gathers, native};
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

/* --- straight-line code ----------------------------------------------------------------------------------- */

static atomic_int requests = -1;        /* a pipe on which programs are named that have run often; -1 for none */
static atomic_llong often = INT64_MAX;  /* so many evaluations are often */

/* From now on (program, kernel, 0) is written to the pipe when a kernel has interpreted a program `evaluations` times, and
   (program, kernel, 1) when a call waits for it. */
void jaxmbd_watch(int pipe, int64_t evaluations) {
  atomic_store(&often, evaluations);
  atomic_store(&requests, pipe);
}

/* Returns 0 if nobody reads the pipe. */
static int request(const Program *p, const int kernel, const int waits) {
  const uint64_t message[3] = {p->key, (uint64_t)kernel, (uint64_t)waits};
  const int pipe = atomic_load_explicit(&requests, memory_order_relaxed);
  return pipe >= 0 && write(pipe, message, sizeof message) == sizeof message;
}

static void count_evaluations(const Program *p, const int kernel, const int64_t evaluations) {
  const int64_t before = atomic_fetch_add_explicit(&p->native->evaluations[kernel], evaluations, memory_order_relaxed);
  const int64_t limit = atomic_load_explicit(&often, memory_order_relaxed);
  if (before < limit && before + evaluations >= limit) request(p, kernel, 0);
}

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t installed = PTHREAD_COND_INITIALIZER;

/* From now on a kernel runs a program by straight-line code, which is never unloaded; NULL: there will be none, for the
   reason `failure`, which the caller never frees. */
void jaxmbd_install(uint64_t key, int kernel, StraightLine *run, const char *failure) {
  const Program *p = look_up(key);
  if (!p) return;
  pthread_mutex_lock(&install_lock);
  p->native->failure[kernel] = failure;
  atomic_store_explicit(&p->native->run[kernel], run, memory_order_release);
  pthread_cond_broadcast(&installed);
  pthread_mutex_unlock(&install_lock);
}

/* How often a kernel has interpreted a program. */
int64_t jaxmbd_evaluations(uint64_t key, int kernel) {
  const Program *p = look_up(key);
  return p ? atomic_load(&p->native->evaluations[kernel]) : 0;
}

#ifdef _WIN32 /* `straight_line_compiler.py` watches no pipe there */
#define NOBODY_COMPILES "engine='native' failed: programs are not compiled on Windows. engine='auto' goes on without it."
#else
#define NOBODY_COMPILES "engine='native' failed: this process was forked from one that compiles programs."
#endif

/* Asks for straight-line code and waits for it. Returns NULL if there is some, else the reason why not. */
static const char *require_straight_line(const Program *p, const int kernel) {
  Native *native = p->native;
  if (atomic_load(&native->run[kernel])) return NULL;
  pthread_mutex_lock(&install_lock);
  native->failure[kernel] = NULL;
  pthread_mutex_unlock(&install_lock);
  if (!request(p, kernel, 1)) return NOBODY_COMPILES;
  pthread_mutex_lock(&install_lock);
  while (!atomic_load(&native->run[kernel]) && !native->failure[kernel]) pthread_cond_wait(&installed, &install_lock);
  const char *failure = atomic_load(&native->run[kernel]) ? NULL : native->failure[kernel];
  pthread_mutex_unlock(&install_lock);
  return failure;
}
