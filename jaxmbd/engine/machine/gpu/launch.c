/* Launches the kernels of `erk_kernel.py` on a GPU's stream. XLA calls it through its foreign function interface. The
   driver, libcuda, is opened when it is needed first, so that this is compiled without CUDA. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

/* The functions of the driver that are used; each returns 0 if it has succeeded. */
static struct {
  int (*ModuleLoadData)(void **module, const void *image);
  int (*ModuleGetFunction)(void **function, void *module, const char *name);
  int (*ModuleGetGlobal_v2)(uint64_t *address, size_t *bytes, void *module, const char *name);
  int (*LaunchKernel)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                      void *stream, void **parameters, void **extra);
  int (*MemcpyDtoDAsync_v2)(uint64_t to, uint64_t from, size_t bytes, void *stream);
  int (*StreamGetCtx)(void *stream, void **context);
  int (*CtxPushCurrent_v2)(void *context);
  int (*CtxPopCurrent_v2)(void **context);
  int (*EventCreate)(void **event, unsigned flags);
  int (*EventRecord)(void *event, void *stream);
  int (*StreamWaitEvent)(void *stream, void *event, unsigned flags);
  int (*GetErrorString)(int status, const char **text);
} cuda;
static const char *const names[] = {
    "cuModuleLoadData", "cuModuleGetFunction", "cuModuleGetGlobal_v2", "cuLaunchKernel", "cuMemcpyDtoDAsync_v2",
    "cuStreamGetCtx", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuEventCreate", "cuEventRecord",
    "cuStreamWaitEvent", "cuGetErrorString"};

/* Kernels in the context of a device. `uniform`: their constant memory, which one launch at a time uses: the next one,
   on whatever stream, waits for `done`. */
typedef struct Loaded {
  struct Loaded *next;
  void *context, *module, *prepare, *run, *done;
  uint64_t key, uniform;
} Loaded;

static Loaded *loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Opens the driver at a path; returns what is missing, NULL if nothing is. */
const char *jaxmbd_open_driver(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) return dlerror();
  void **functions = (void **)&cuda;
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (!(functions[k] = dlsym(library, names[k]))) return names[k];
  return NULL;
}

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, const char *what, const int status) {
  const char *why = NULL;
  char text[512];
  if (cuda.GetErrorString) cuda.GetErrorString(status, &why);
  snprintf(text, sizeof text, "jaxmbd: %s: %s (%d).", what, why ? why : "the driver gives no reason", status);
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, text, XLA_FFI_Error_Code_INTERNAL};
  return frame->api->XLA_FFI_Error_Create(&args);
}

/* The kernels of an image in a context, which is the current one; they are loaded once. */
static int load(Loaded **found, void *context, const uint64_t key, const void *image) {
  for (Loaded *k = loaded; k; k = k->next)
    if (k->context == context && k->key == key) return *found = k, 0;
  Loaded *k = calloc(1, sizeof *k);
  if (!k) return 2; /* out of memory */
  size_t bytes;
  int status = cuda.ModuleLoadData(&k->module, image);
  if (!status) status = cuda.ModuleGetFunction(&k->prepare, k->module, "jaxmbd_prepare");
  if (!status) status = cuda.ModuleGetFunction(&k->run, k->module, "jaxmbd_run");
  if (!status) status = cuda.ModuleGetGlobal_v2(&k->uniform, &bytes, k->module, "uniform");
  if (!status) status = cuda.EventCreate(&k->done, 2 /* without times */);
  if (status) return free(k), status;
  k->context = context, k->key = key, k->next = loaded;
  return *found = loaded = k, 0;
}

/* Computes what is the same for all instances, and runs the motions of all. `results`: memory for the former. */
static int launch(Loaded *k, void **buffers, int64_t batch, const int64_t block, uint64_t results, const size_t bytes,
                  void *stream) {
  void *first[] = {buffers, &results}, *second[] = {buffers, &batch};
  int status = cuda.StreamWaitEvent(stream, k->done, 0);
  if (!status) status = cuda.LaunchKernel(k->prepare, 1, 1, 1, 1, 1, 1, 0, stream, first, NULL);
  if (!status) status = cuda.MemcpyDtoDAsync_v2(k->uniform, results, bytes, stream);
  const unsigned blocks = (unsigned)((batch + block - 1) / block);
  if (!status) status = cuda.LaunchKernel(k->run, blocks, 1, 1, (unsigned)block, 1, 1, 0, stream, second, NULL);
  return status ? status : cuda.EventRecord(k->done, stream);
}

static void *attribute(const XLA_FFI_CallFrame *frame, const char *name) {
  for (int64_t i = 0; i < frame->attrs.size; i++) {
    const XLA_FFI_ByteSpan *given = frame->attrs.names[i];
    if (given->len == strlen(name) && !memcmp(given->ptr, name, given->len)) return frame->attrs.attrs[i];
  }
  return NULL;
}

static int64_t number(const XLA_FFI_CallFrame *frame, const char *name) {
  return *(int64_t *)((XLA_FFI_Scalar *)attribute(frame, name))->value;
}

/* Runs a motion: the operands and results are those of the kernel, and the last result is memory for what is the same for
   all instances. Attributes: `image`, the machine code; `key`, its hash; `batch`; `block`. */
XLA_FFI_Error *jaxmbd_launch(XLA_FFI_CallFrame *frame) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata_Extension *e = (XLA_FFI_Metadata_Extension *)frame->extension_start;
    e->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    e->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  const int64_t inputs = frame->args.size, count = inputs + frame->rets.size - 1;
  void *buffers[count + 1];
  size_t bytes = 0;
  for (int64_t i = 0; i <= count; i++) {
    const XLA_FFI_Buffer *b = i < inputs ? frame->args.args[i] : frame->rets.rets[i - inputs];
    buffers[i] = b->data, bytes = b->dtype == XLA_FFI_DataType_F64 ? 8 : 4;
    for (int64_t d = 0; d < b->rank; d++) bytes *= (size_t)b->dims[d];
  }
  XLA_FFI_Stream_Get_Args stream = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
  XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&stream);
  if (error) return error;
  void *context = NULL;
  int status = cuda.StreamGetCtx(stream.stream, &context);
  if (!status) status = cuda.CtxPushCurrent_v2(context);
  if (status) return fail(frame, "the device cannot be used", status);
  const XLA_FFI_Array *image = attribute(frame, "image");
  Loaded *kernels = NULL;
  const char *what = "a kernel cannot be loaded";
  pthread_mutex_lock(&lock);
  status = load(&kernels, context, (uint64_t)number(frame, "key"), image->data);
  if (!status) {
    what = "a kernel cannot be launched";
    status = launch(kernels, buffers, number(frame, "batch"), number(frame, "block"),
                    (uint64_t)(uintptr_t)buffers[count], bytes, stream.stream);
  }
  pthread_mutex_unlock(&lock);
  cuda.CtxPopCurrent_v2(&context);
  return status ? fail(frame, what, status) : NULL;
}
